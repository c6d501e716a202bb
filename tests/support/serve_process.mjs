// A server of ./learn serve as a child process, which ends with this one.
import { spawn } from 'node:child_process'

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
