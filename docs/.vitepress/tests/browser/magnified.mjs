// Where a program magnifies rounding errors, as a stack of 48 layers does.
import { compareRuns } from './events.mjs'
import { runNatively } from './site.mjs'

// OpenBLAS does its sums in another order on each of these processors. The places where the numbers of
// two such runs differ by more than `allowed`: there the browser's may, too, but not by more than 1 %.
export async function magnifiedPlaces(command, native, allowed) {
  if (native.lines.length === 0) return []
  const others = await Promise.all(['Haswell', 'Nehalem', 'Prescott']
    .map(type => runNatively(command, { OPENBLAS_CORETYPE: type })))
  const runs = [native, ...others]
  return runs.flatMap((run, i) => runs.slice(i + 1).flatMap(other => compareRuns(run, other, allowed)))
    .map(({ place }) => place)
}
