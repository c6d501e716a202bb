// What the browser checks share: a server for the built site, Chromium, and the native programs.
import { execFile } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, extname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import playwright from 'playwright-core'

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..')

// ./learn site --build writes the site; SITE names another copy.
export const site = resolve(root, process.env.SITE || 'build/site')

export const slugs = readdirSync(join(root, 'docs'))
  .filter(name => /^\d\d_.*\.md$/.test(name))
  .map(name => name.replace('.md', ''))
  .sort()

const types = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wasm': 'application/wasm',
  '.woff2': 'font/woff2',
}

// Serves folders below paths, such as { '/book/': 'build/site' }. The longest path decides.
// An address without an extension is a page: /05_gqa has the file 05_gqa.html.
export async function serve(folders) {
  const paths = Object.keys(folders).sort((a, b) => b.length - a.length)
  const server = createServer(async (request, response) => {
    const address = decodeURIComponent(new URL(request.url, 'http://localhost').pathname)
    const path = paths.find(path => address.startsWith(path))
    const rest = path === undefined ? '' : address.slice(path.length)
    const file = rest === '' || rest.endsWith('/') ? `${rest}index.html` : extname(rest) ? rest : `${rest}.html`
    try {
      if (path === undefined || rest.split('/').includes('..')) throw new Error('no such file')
      const content = await readFile(join(folders[path], file))
      response.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' })
      response.end(content)
    } catch {
      response.writeHead(404).end()
    }
  })
  await new Promise(done => server.listen(0, '127.0.0.1', done))
  return { origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() }
}

// Ends the process with one line.
export function fail(line) {
  console.error(line)
  process.exit(2)
}

// BROWSER=firefox takes Firefox, which is driven by WebDriver BiDi, without a changed build of it.
const browsers = {
  chromium: { type: playwright.chromium, path: '/usr/bin/chromium', package: 'chromium', args: ['--no-sandbox'] },
  firefox: { type: playwright._bidiFirefox, path: '/usr/bin/firefox-esr', package: 'firefox-esr', args: [] },
}
export const browserName = process.env.BROWSER || 'chromium'

export function launch() {
  const browser = browsers[browserName] ?? fail(`BROWSER is chromium or firefox, not ${browserName}`)
  const executablePath = process.env.BROWSER_PATH || browser.path
  if (!existsSync(executablePath)) fail(`${executablePath} is missing: install the Debian package ${browser.package}`)
  return browser.type.launch({ executablePath, args: browser.args })
}

// The lines that a program of build/ prints with these arguments. Chapter 13 writes its model into a
// folder of its own.
export async function runNatively({ slug, args }, environment = {}) {
  const program = join(root, 'build', slug)
  if (!existsSync(program)) fail(`build/${slug} is missing: build the native programs first`)
  const folder = slug === '13_training' ? await mkdtemp(join(tmpdir(), 'training-')) : null
  const result = await new Promise((done) => {
    const options = { cwd: root, maxBuffer: 2 ** 28, env: { ...process.env, ...environment } }
    const folderArgs = folder ? ['--folder', folder] : []
    execFile(program, [...args, ...folderArgs, '--json', '--plots', 'none'], options,
      (error, stdout, stderr) => done({
        code: error ? error.code : 0,
        lines: stdout.split('\n').filter(Boolean),
        error: stderr.trim(),
      }))
  })
  if (folder) await rm(folder, { recursive: true })
  return result
}

// Splits at spaces outside of double quotes.
export const words = text => (text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []).map(word => word.replaceAll('"', ''))

export const commandText = ({ slug, args }) => ['./learn', parseInt(slug) || slug, ...args].join(' ')
