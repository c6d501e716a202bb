import { beforeEach, expect, test, vi } from 'vitest'
import type { LiveEvent } from '../live/events'
import { programsIn, type ProgramWorker, type RunProgram } from '../live/program'
import type { WorkerReply, WorkerRequest } from '../live/worker'

// A worker that records its requests; the test sends its replies.
class FakeWorker implements ProgramWorker {
  requests: WorkerRequest[] = []
  isTerminated = false
  onmessage: Worker['onmessage'] = null
  onerror: Worker['onerror'] = null
  postMessage(request: WorkerRequest) {
    this.requests.push(request)
  }
  terminate() {
    this.isTerminated = true
  }
  reply(data: WorkerReply) {
    this.onmessage!.call(this as unknown as Worker, { data } as MessageEvent)
  }
}

const emptyModule = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0])
let fetched: string[]
let workers: FakeWorker[]
let run: RunProgram

beforeEach(() => {
  fetched = []
  workers = []
  vi.stubGlobal('fetch', async (url: string) => {
    fetched.push(url)
    if (url.includes('missing')) return new Response('', { status: 404 })
    return new Response(emptyModule, { headers: { 'Content-Type': 'application/octet-stream' } })
  })
  run = programsIn('/programs/', () => {
    workers.push(new FakeWorker())
    return workers.at(-1)!
  })
})

// Until the program of a worker was asked to run.
const started = (worker: FakeWorker) => vi.waitFor(() => expect(worker.requests.at(-1)!.run).toBeDefined())

test('a run gets the module, its arguments and its files, and its lines become events', async () => {
  const events: LiveEvent[] = []
  const { result } = run({ slug: '05_gqa', args: ['--seq-len', '6'] }, event => events.push(event))
  await started(workers[0])
  const [loading, running] = workers[0].requests
  expect(loading).toEqual({ script: '/programs/05_gqa.js' })
  expect(running.run!.args).toEqual(['--seq-len', '6', '--json'])
  expect(running.run!.module).toBeInstanceOf(WebAssembly.Module)
  expect(running.run!.files.map(({ path }) => path)).toEqual(['words/tokens.txt', 'words/words.safetensors'])

  workers[0].reply({ type: 'line', line: '{"type":"value","name":"loss","text":"2.5"}' })
  workers[0].reply({ type: 'error', line: 'rejected' })
  workers[0].reply({ type: 'exit', code: 2, milliseconds: 12 })
  expect(await result).toEqual({ code: 2, error: 'rejected', milliseconds: 12 })
  expect(events).toEqual([{ type: 'value', name: 'loss', text: '2.5' }])
  expect(workers[0].isTerminated).toBe(true)
})

test('modules and assets are fetched once, and the next run has a worker that waits', async () => {
  const first = run({ slug: '05_gqa', args: [] }, () => {})
  await started(workers[0])
  workers[0].reply({ type: 'exit', code: 0, milliseconds: 1 })
  await first.result
  await vi.waitFor(() => expect(workers.length).toBe(2))
  const count = fetched.length
  run({ slug: '05_gqa', args: [] }, () => {})
  await started(workers[1])
  expect(fetched.length).toBe(count)
})

test('pages are files of /docs, and what arrives for the first time is counted', async () => {
  let bytes = 0
  const runFiles = { pages: ['01_masking.md', 'notation.md'], onBytes: (count: number) => (bytes += count) }
  const first = run({ slug: 'walk', args: [] }, () => {}, runFiles)
  await started(workers[0])
  for (const page of runFiles.pages) expect(fetched).toContain(`/programs/docs/${page}`)
  expect(workers[0].requests.at(-1)!.run!.files.slice(-1)[0].path).toEqual('/docs/notation.md')
  const numFiles = workers[0].requests.at(-1)!.run!.files.length
  expect(bytes).toBe((numFiles + 1) * emptyModule.length) // and the program, whose type the server does not name
  workers[0].reply({ type: 'exit', code: 0, milliseconds: 1 })
  await first.result
  await vi.waitFor(() => expect(workers.length).toBe(2))
  run({ slug: 'walk', args: [] }, () => {}, runFiles)
  await started(workers[1])
  expect(bytes).toBe((numFiles + 1) * emptyModule.length)
})

test('a stopped run terminates its worker', () => {
  run({ slug: '05_gqa', args: [] }, () => {}).stop()
  expect(workers[0].isTerminated).toBe(true)
})

test('a program that is not there is an error', async () => {
  await expect(run({ slug: 'missing', args: [] }, () => {}).result).rejects.toThrow('/programs/missing.wasm: 404')
})

test('a line that is no event is an error', async () => {
  const { result } = run({ slug: '13_training', args: [] }, () => {})
  await started(workers[0])
  workers[0].reply({ type: 'line', line: 'Aborted' })
  await expect(result).rejects.toThrow('not an event: Aborted')
})
