// Every live cell of the pages shows what its program prints. The programs of build/ are run where
// they exist; chapter 13, which trains for a minute, only with ALL_CELLS=1.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { commandText, type Command } from '../live/command'
import { joinGenerated, parseEvent, type LiveEvent } from '../live/events'
import { matchExcerpt } from '../live/match'
import { printedLines } from '../live/printed'
import { cellsOf, chapters, nativeProgram } from './pages'

const runs = new Map<string, Promise<LiveEvent[]>>()

async function runNatively({ slug, args }: Command): Promise<LiveEvent[]> {
  const { stdout } = await promisify(execFile)(nativeProgram(slug)!, [...args, '--json'], { maxBuffer: 2 ** 28 })
  return joinGenerated(stdout.trim().split('\n').map(parseEvent))
}

function runOf(command: Command): Promise<LiveEvent[]> {
  const key = commandText(command)
  const run = runs.get(key) ?? runNatively(command)
  runs.set(key, run)
  return run
}

const isLong = (slug: string) => slug === '13_training' && !process.env.ALL_CELLS

describe.each([...chapters, { slug: 'walk_through' }])('$slug', ({ slug }) => {
  test.each(cellsOf(slug))('line $line', { timeout: 300_000 }, async ({ command, excerpt, isVolatile }) => {
    if (!nativeProgram(command.slug) || isLong(command.slug)) return
    const match = matchExcerpt(excerpt, printedLines(await runOf(command)), !isVolatile)
    // Words can depend on run times, too.
    if (!isVolatile) expect(match.missing).toEqual([])
    expect(match.events.length).toBeGreaterThan(0)
  })
})
