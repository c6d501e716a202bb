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
  keep?: string
  onFiles?: (files: AssetFile[]) => void
}

export type RunProgram = (command: Command, onEvent: (event: LiveEvent) => void, runFiles?: RunFiles) => Run

// What a worker of the browser offers, as far as it is used here.
export type ProgramWorker = Pick<Worker, 'postMessage' | 'terminate' | 'onmessage' | 'onerror'>

async function fetched(url: string): Promise<Response> {
  const response = await fetch(url)
  if (!response.ok) throw new Error(`${url}: ${response.status}`)
  return response
}

async function compiled(url: string): Promise<WebAssembly.Module> {
  try {
    return await WebAssembly.compileStreaming(fetched(url))
  } catch (error) {
    // The server may not name the type of the file.
    if (!(error instanceof TypeError)) throw error
    return WebAssembly.compile(await (await fetched(url)).arrayBuffer())
  }
}

async function loadAsset(folder: string, path: string): Promise<AssetFile> {
  const response = await fetched(`${folder}assets/${path}`)
  return { path, content: new Uint8Array(await response.arrayBuffer()) }
}

// Calls load once for each key. A failed load is repeated at the next call.
function once<T>(load: (key: string) => Promise<T>): (key: string) => Promise<T> {
  const results = new Map<string, Promise<T>>()
  return (key) => {
    let result = results.get(key)
    if (!result) {
      result = load(key)
      result.catch(() => results.delete(key))
      results.set(key, result)
    }
    return result
  }
}

// `folder` is the address of the programs, which ends with a slash.
export function programsIn(folder: string, createWorker: () => ProgramWorker): RunProgram {
  const moduleOf = once(slug => compiled(`${folder}${slug}.wasm`))
  const assetOf = once(path => loadAsset(folder, path))
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
                       { files: moreFiles = [], keep, onFiles = () => {} }: RunFiles) {
    const [module, ...files] = await Promise.all([moduleOf(slug), ...assetPaths(slug, args).map(assetOf)])
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
