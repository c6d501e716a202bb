// The run of ./learn walk that the website begins with, computed when the pages are built, by the
// same program that then runs in the browser.
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { root } from '../chapters'
import { assetPaths } from '../live/assets'
import { parseEvent, type LiveEvent } from '../live/events'

export type WalkEvents = LiveEvent[]
declare const data: WalkEvents
export { data }

interface FileSystem {
  mkdirTree(path: string): void
  writeFile(path: string, content: Uint8Array): void
}

export default {
  async load(): Promise<WalkEvents> {
    const program = resolve(root, 'build-web/programs/walk')
    const [binary, ...files] = await Promise.all([
      readFile(`${program}.wasm`),
      ...assetPaths('walk', []).map(async path => ({ path, content: await readFile(resolve(root, 'assets', path)) })),
    ])
    // The script is made for a worker of a browser, where `self` and `location` exist.
    Object.assign(globalThis, { self: globalThis, location: pathToFileURL(`${program}.js`) })
    const { default: createProgram } = await import(`${pathToFileURL(`${program}.js`)}`)
    const events: WalkEvents = []
    await createProgram({
      arguments: ['--json'],
      wasmBinary: binary,
      print: (line: string) => events.push(parseEvent(line)),
      printErr(line: string) {
        throw new Error(`walk: ${line}`)
      },
      preRun: [({ FS }: { FS: FileSystem }) => {
        FS.mkdirTree('/assets/king_james')
        for (const { path, content } of files) FS.writeFile(`/assets/${path}`, content)
      }],
    })
    return events
  },
}
