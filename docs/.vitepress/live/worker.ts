// Runs a program in a worker, so that the page stays responsive and a run can be terminated.

interface ProgramOptions {
  arguments: string[]
  print(line: string): void
  printErr(line: string): void
  instantiateWasm(imports: WebAssembly.Imports,
                  receive: (instance: WebAssembly.Instance, module: WebAssembly.Module) => void): object
  preRun: ((program: { FS: FileSystem }) => void)[]
  onExit(code: number): void
}

interface FileSystem {
  mkdirTree(path: string): void
  writeFile(path: string, content: Uint8Array): void
  readFile(path: string): Uint8Array
  readdir(path: string): string[]
  stat(path: string): { mode: number, mtime: Date }
  isFile(mode: number): boolean
  analyzePath(path: string): { exists: boolean }
}

export interface AssetFile {
  path: string // "words/tokens.txt", in the folder /assets; or from the root, "/run/config.json"
  content: Uint8Array
}

// Without a module, the worker only loads the script, so that a later run starts sooner.
export interface WorkerRequest {
  script: string
  run?: {
    module: WebAssembly.Module
    args: string[]
    files: AssetFile[]
    keep?: string // a folder whose files are sent when the program has written them
  }
}

export type WorkerReply =
  | { type: 'line', line: string }
  | { type: 'error', line: string }
  | { type: 'files', files: AssetFile[] }
  | { type: 'exit', code: number, milliseconds: number } // of the program alone, without loading it

function reply(message: WorkerReply) {
  postMessage(message)
}

function writeFiles(fileSystem: FileSystem, files: AssetFile[]) {
  for (const { path, content } of files) {
    const file = path.startsWith('/') ? path : `/assets/${path}`
    fileSystem.mkdirTree(file.slice(0, file.lastIndexOf('/')))
    fileSystem.writeFile(file, content)
  }
}

// Sends the files of a folder if one was written since the last call.
function keeper(folder: string) {
  let last = 0
  return (fileSystem: FileSystem) => {
    if (!fileSystem.analyzePath(folder).exists) return
    const paths = fileSystem.readdir(folder).map(name => `${folder}/${name}`)
      .filter(path => fileSystem.isFile(fileSystem.stat(path).mode) && !path.endsWith('.part'))
    const latest = Math.max(0, ...paths.map(path => fileSystem.stat(path).mtime.getTime()))
    if (latest <= last) return
    last = latest
    reply({ type: 'files', files: paths.map(path => ({ path, content: fileSystem.readFile(path) })) })
  }
}

async function answer({ script, run }: WorkerRequest) {
  const { default: createProgram } = await import(/* @vite-ignore */ script)
  if (!run) return
  let began = 0
  let fileSystem: FileSystem
  const keep = run.keep ? keeper(run.keep) : () => {}
  const options: ProgramOptions = {
    arguments: run.args,
    print(line) {
      reply({ type: 'line', line })
      if (line.startsWith('{"type":"progress"')) keep(fileSystem)
    },
    printErr: line => reply({ type: 'error', line }),
    instantiateWasm(imports, receive) {
      WebAssembly.instantiate(run.module, imports).then(instance => receive(instance, run.module))
      return {}
    },
    preRun: [(program) => {
      began = performance.now()
      fileSystem = program.FS
      writeFiles(fileSystem, run.files)
    }],
    onExit(code) {
      keep(fileSystem)
      reply({ type: 'exit', code, milliseconds: performance.now() - began })
    },
  }
  await createProgram(options)
}

onmessage = ({ data }: MessageEvent<WorkerRequest>) => {
  answer(data).catch((error) => {
    reply({ type: 'error', line: String(error?.message ?? error) })
    reply({ type: 'exit', code: 1, milliseconds: 0 })
  })
}
