// Runs the programs of the chapters: each run is a fresh instance in a fresh worker.
import { assetPaths } from './assets'
import type { Command } from './command'
import { parseEvent, type LiveEvent } from './events'
import type { AssetFile, WorkerReply, WorkerRequest } from './worker'

export interface RunResult {
  code: number // 0, or 2 for a rejected option
  error: string // what the program printed to stderr
  milliseconds: number // without the time to load it
}

export interface Run {
  stop(): void // its result then never comes
  result: Promise<RunResult> // rejected if the program cannot be loaded
}

// Files that a run reads besides the assets, and a folder whose files it gives back.
export interface RunFiles {
  files?: AssetFile[]
  pages?: string[] // of docs/, "05_gqa.md", to be loaded
  onBytes?: (count: number) => void // with each piece of the program and of what it reads that arrives
  keep?: string
  onFiles?: (files: AssetFile[]) => void
}

export type RunProgram = (command: Command, onEvent: (event: LiveEvent) => void, runFiles?: RunFiles) => Run

// What a worker of the browser offers, as far as it is used here.
export type ProgramWorker = Pick<Worker, 'postMessage' | 'terminate' | 'onmessage' | 'onerror'>

type OnBytes = RunFiles['onBytes']

async function fetched(url: string, onBytes: OnBytes): Promise<Response> {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`${url}: ${response.status}`)
  if (!onBytes || !response.body) return response
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, controller) {
      onBytes(piece.byteLength)
      controller.enqueue(piece)
    },
  })
  return new Response(response.body.pipeThrough(counter), response)
}

async function compiled(url: string, onBytes: OnBytes): Promise<WebAssembly.Module> {
  const response = await fetched(url, onBytes)
  // The server may not name the type of the file.
  if (response.headers.get('Content-Type') === 'application/wasm') return WebAssembly.compileStreaming(response)
  return WebAssembly.compile(await response.arrayBuffer())
}

// A path from the root is the same in the folder of the programs.
async function loadAsset(folder: string, path: string, onBytes: OnBytes): Promise<AssetFile> {
  const response = await fetched(path.startsWith('/') ? folder + path.slice(1) : `${folder}assets/${path}`, onBytes)
  return { path, content: new Uint8Array(await response.arrayBuffer()) }
}

// Calls load once for each key. A failed load is repeated at the next call.
function once<T>(load: (key: string, onBytes: OnBytes) => Promise<T>): (key: string, onBytes: OnBytes) => Promise<T> {
  const results = new Map<string, Promise<T>>()
  return (key, onBytes) => {
    let result = results.get(key)
    if (!result) {
      result = load(key, onBytes)
      result.catch(() => results.delete(key))
      results.set(key, result)
    }
    return result
  }
}

// `folder` is the address of the programs, which ends with a slash.
export function programsIn(folder: string, createWorker: () => ProgramWorker): RunProgram {
  const moduleOf = once((slug, onBytes) => compiled(`${folder}${slug}.wasm`, onBytes))
  const assetOf = once((path, onBytes) => loadAsset(folder, path, onBytes))
  const scriptOf = (slug: string) => `${folder}${slug}.js`

  // One worker waits with the script loaded. The first is prepared after the first run, which it
  // would slow down, the others at the start of a run.
  let spare: ProgramWorker | undefined

  function prepareWorker(slug: string): ProgramWorker {
    const worker = createWorker()
    const request: WorkerRequest = { script: scriptOf(slug) }
    worker.postMessage(request)
    return worker
  }

  async function start(worker: ProgramWorker, { slug, args }: Command, onEvent: (event: LiveEvent) => void,
                       { files: moreFiles = [], pages = [], onBytes, keep, onFiles = () => {} }: RunFiles) {
    const paths = [...assetPaths(slug, args), ...pages.map(page => `/docs/${page}`)]
    const [module, ...files] = await Promise.all([moduleOf(slug, onBytes), ...paths.map(path => assetOf(path, onBytes))])
    const errors: string[] = []
    return new Promise<RunResult>((resolve, reject) => {
      worker.onerror = event => reject(new Error(event.message))
      worker.onmessage = ({ data }: MessageEvent<WorkerReply>) => {
        try {
          if (data.type === 'line') onEvent(parseEvent(data.line))
          else if (data.type === 'error') errors.push(data.line)
          else if (data.type === 'files') onFiles(data.files)
          else resolve({ code: data.code, error: errors.join('\n'), milliseconds: data.milliseconds })
        } catch (error) {
          reject(error)
        }
      }
      const request: WorkerRequest = {
        script: scriptOf(slug),
        run: { module, args: [...args, '--json'], files: [...files, ...moreFiles], keep },
      }
      worker.postMessage(request)
    })
  }

  return (command, onEvent, runFiles = {}) => {
    const worker = spare ?? prepareWorker(command.slug)
    spare &&= prepareWorker(command.slug)
    const result = start(worker, command, onEvent, runFiles).finally(() => {
      worker.terminate()
      spare ??= prepareWorker(command.slug)
    })
    return { stop: () => worker.terminate(), result }
  }
}
