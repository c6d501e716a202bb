// A server of ./learn serve as a child process, which ends with this one.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'

export const sleep = milliseconds => new Promise(done => setTimeout(done, milliseconds))

const children = []
process.on('exit', () => children.forEach(child => child.kill('SIGKILL')))

// Starts it on a free port, and waits for its address. `ended` gives its exit code.
export async function startServer(program, ...options) {
  const child = spawn(program, ['--port', '0', ...options])
  children.push(child)
  const server = { child, log: '', ended: new Promise(done => child.on('exit', (code, signal) => done(signal ?? code))) }
  child.stderr.on('data', data => server.log += data)
  child.stdout.on('data', data => server.log += data)
  for (let i = 0; i < 500 && child.exitCode === null && !server.url; ++i) {
    await sleep(20)
    server.url = /(http:\S+)  \(Ctrl-C/.exec(server.log)?.[1]
  }
  server.port = Number(/:(\d+)$/.exec(server.url)?.[1])
  return server
}

// The program that a check runs. Exits with 77 if it or a file of the npm packages is missing, or Node
// is too old for them, and with 1 after 240 seconds.
export function programForClients(build, file) {
  const program = resolve(build, 'serve')
  for (const needed of [program, file])
    if (!existsSync(needed)) {
      console.log(`skipped: there is no ${needed}`)
      process.exit(77)
    }
  if (Number(process.versions.node.split('.')[0]) < 20) {
    console.log(`skipped: the clients need Node 20, this is ${process.version}`)
    process.exit(77)
  }
  setTimeout(() => { console.log('FAILED: not ready after 240 seconds'); process.exit(1) }, 240_000).unref()
  return program
}
