import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { LiveEvent } from '../live/events'
import type { RunProgram, RunResult } from '../live/program'
import { Session } from '../live/session'

// Runs that end when the test says so.
interface FakeRun {
  args: string[]
  emit(event: LiveEvent): void
  end(result?: Partial<RunResult>): Promise<void>
  isStopped: boolean
}

let runs: FakeRun[]
let session: Session

const runProgram: RunProgram = ({ args }, onEvent) => {
  let resolve: (result: RunResult) => void
  const result = new Promise<RunResult>(done => (resolve = done))
  const run: FakeRun = {
    args,
    emit: onEvent,
    async end(part) {
      resolve({ code: 0, error: '', milliseconds: 20, ...part })
      await result
      await Promise.resolve()
    },
    isStopped: false,
  }
  runs.push(run)
  return { stop: () => (run.isStopped = true), result }
}

const value = (text: string): LiveEvent => ({ type: 'value', name: 'loss', text })

beforeEach(() => {
  vi.useFakeTimers()
  runs = []
  session = new Session({ slug: '05_gqa', args: ['--seq-len', '6'] }, runProgram)
})

test('all cells share one first run', async () => {
  session.startOnce()
  session.startOnce()
  runs[0].emit(value('1'))
  await runs[0].end()
  session.startOnce()
  expect(runs.length).toBe(1)
  expect(session.state).toMatchObject({ status: 'done', events: [value('1')], pageEvents: [value('1')] })
})

describe('after a short run', () => {
  beforeEach(async () => {
    session.startOnce()
    runs[0].emit(value('1'))
    await runs[0].end()
  })

  test('a change runs the program at once', async () => {
    session.set('--seq-len', '8')
    expect(runs[1].args).toEqual(['--seq-len', '8'])
    runs[1].emit(value('2'))
    expect(session.state.events).toEqual([value('1')])
    await runs[1].end()
    expect(session.state).toMatchObject({ events: [value('2')], pageEvents: [value('1')], shownArgs: ['--seq-len', '8'] })
  })

  test('changes during a run are one more run, the latest', async () => {
    for (const length of ['7', '8', '9']) session.set('--seq-len', length)
    expect(runs.length).toBe(2)
    await runs[1].end()
    expect(runs.length).toBe(3)
    expect(runs[2].args).toEqual(['--seq-len', '9'])
    await runs[2].end()
    expect(runs.length).toBe(3)
  })

  test('a change ends a run that takes long', () => {
    session.set('--seq-len', '900')
    vi.advanceTimersByTime(1500)
    session.set('--seq-len', '9')
    expect(runs[1].isStopped).toBe(true)
    expect(runs[2].args).toEqual(['--seq-len', '9'])
  })

  test('a rejection keeps the events and says why', async () => {
    session.set('--seq-len', '0')
    await runs[1].end({ code: 2, error: '05_gqa: --seq-len takes an integer from 1 to 1024, not \'0\'' })
    expect(session.state).toMatchObject({ status: 'failed', events: [value('1')] })
    expect(session.state.message).toContain('takes an integer')
    session.reset('--seq-len')
    expect(runs[2].args).toEqual(['--seq-len', '6'])
  })

  test('a stopped run shows nothing more', async () => {
    session.set('--seq-len', '8')
    session.stop()
    expect(runs[1].isStopped).toBe(true)
    await runs[1].end()
    expect(session.state.status).toBe('stopped')
  })
})

test('one slow run of a fast program does not stop it from following the slider', async () => {
  session.startOnce()
  await runs[0].end({ milliseconds: 600 })
  for (const [i, milliseconds] of [500, 90, 80, 400].entries()) {
    session.set('--seq-len', String(7 + i))
    await runs[i + 1].end({ milliseconds })
  }
  expect(session.isLive).toBe(true)
  for (let i = 0; i < 3; ++i) {
    session.start()
    await runs[i + 5].end({ milliseconds: 400 })
  }
  expect(session.isLive).toBe(false)
})

test('after a long run, a change waits for the button', async () => {
  session.startOnce()
  await runs[0].end({ milliseconds: 3000 })
  session.set('--seq-len', '8')
  expect(runs.length).toBe(1)
  session.start()
  expect(runs[1].args).toEqual(['--seq-len', '8'])
})

test('a long run shows its events as they arrive, and its progress', () => {
  session.startOnce()
  runs[0].emit({ type: 'progress', text: '1/10' })
  vi.advanceTimersByTime(60)
  expect(session.state).toMatchObject({ progress: '1/10', events: [] })
  vi.advanceTimersByTime(300)
  runs[0].emit(value('1'))
  vi.advanceTimersByTime(60)
  expect(session.state).toMatchObject({ status: 'running', events: [value('1')] })
})

test('a program that cannot be loaded is a failure with a message', async () => {
  session = new Session({ slug: '05_gqa', args: [] }, () => ({
    stop: () => {}, result: Promise.reject(new Error('05_gqa.wasm: 404')),
  }))
  session.startOnce()
  await vi.advanceTimersByTimeAsync(1)
  expect(session.state).toMatchObject({ status: 'failed', message: 'The program could not be run: 05_gqa.wasm: 404' })
})
