// Opens every page of the built site in Chromium (BROWSER=firefox: in Firefox): it loads without
// errors and requests to other hosts, fits the window, has no serious finding of axe-core, and its
// cells show what the native programs print. Needs a built site and the native programs.
import { execFile } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { readCells } from './cells.mjs'
import { checkControls, checkStop, differencesOf, isLong, nativeRun, settle } from './controls.mjs'
import { checkPlaygrounds } from './playgrounds.mjs'
import { launch, fail, root, serve, site, slugs } from './site.mjs'

const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

// Records what must not happen while a page is open.
function watch(page, origin) {
  const problems = []
  page.on('pageerror', error => problems.push(`error: ${error.message}`))
  page.on('console', (message) => {
    if (message.type() !== 'error' && message.type() !== 'warning') return
    problems.push(`console: ${message.text()} ${message.location().url}`)
  })
  page.on('request', (request) => {
    const url = request.url()
    if (!url.startsWith(`${origin}/`) && !/^(data|blob):/.test(url)) problems.push(`request to another host: ${url}`)
  })
  page.on('requestfailed', request => problems.push(`failed request: ${request.url()}`))
  return problems
}

// Brings everything near the window once, so that cells and images load.
async function scrollThrough(page) {
  await page.evaluate(async () => {
    for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
      scrollTo({ top: y, behavior: 'instant' })
      await new Promise(done => setTimeout(done, 30))
    }
    scrollTo({ top: 0, behavior: 'instant' })
  })
  await settle(page)
}

// In the page: what is wider than the window, outside of scrolling containers.
function findWide() {
  const width = document.documentElement.clientWidth
  if (document.documentElement.scrollWidth <= width) return []
  const isInside = element => element.parentElement &&
    (getComputedStyle(element.parentElement).overflowX !== 'visible' || isInside(element.parentElement))
  const wide = [...document.body.querySelectorAll('*')]
    .filter(element => element.getBoundingClientRect().right > width + 1 && !isInside(element))
  const described = wide.slice(0, 1)
    .map(element => `<${element.tagName.toLowerCase()} class="${element.className}"> ${element.textContent.slice(0, 60)}`)
  return [`scrolls horizontally: ${document.documentElement.scrollWidth} of ${width} pixels: ${described}`]
}

async function checkWidths(page) {
  const findings = []
  for (const width of [375, 1400]) {
    await page.setViewportSize({ width, height: 900 })
    await page.waitForTimeout(300)
    findings.push(...(await page.evaluate(findWide)).map(line => `at ${width} pixels: ${line}`))
  }
  return findings
}

// In dark colors, only the colors differ.
async function checkAccessibility(page) {
  await page.addScriptTag({ path: axe })
  const findings = []
  for (const colorScheme of ['light', 'dark']) {
    const isDark = await page.evaluate(() => document.documentElement.classList.contains('dark'))
    if (isDark !== (colorScheme === 'dark')) await page.locator('.VPNavBarAppearance .VPSwitchAppearance').click()
    await page.waitForTimeout(300)
    const violations = await page.evaluate(async (colorScheme) => {
      const options = { resultTypes: ['violations'], preload: false }
      if (colorScheme === 'dark') options.runOnly = { type: 'rule', values: ['color-contrast'] }
      // Thousands of elements: mathematics has the color of its paragraph, all code the colors of one theme.
      document.querySelectorAll('main .shiki').forEach((code, i) => code.toggleAttribute('data-same-colors', i >= 3))
      const context = { exclude: [['.katex-html'], ['[data-same-colors]']] }
      return (await window.axe.run(context, options)).violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, impact, nodes }) => `${impact} ${id}, ${nodes.length} times, such as ` +
          [...new Set(nodes.map(({ html }) => html.replace(/>.*/s, '>').slice(0, 100)))].slice(0, 4).join(' '))
    }, colorScheme)
    findings.push(...violations.map(line => `axe, ${colorScheme}: ${line}`))
  }
  return findings
}

// Starts the runs that wait for their button.
async function runAll(page) {
  const started = new Set()
  const cells = await page.evaluate(readCells)
  for (const [index, { command, status }] of cells.entries()) {
    if (status !== 'idle' || isLong(command) || started.has(command)) continue
    started.add(command)
    await page.locator('.live-cell').nth(index).getByRole('button', { name: 'Run', exact: true }).click()
    await settle(page)
  }
}

async function checkCells(page) {
  const findings = []
  const cells = await page.evaluate(readCells)
  for (const [index, cell] of cells.entries()) {
    if (isLong(cell.command)) continue
    const where = `cell ${index + 1}, ${cell.command}`
    if (cell.status !== 'done') findings.push(`${where}: ${cell.status} ${cell.message}`)
    else if (!cell.hasEvents) findings.push(`${where}: shows no events`)
    else findings.push(...(await differencesOf(cell)).map(line => `${where}: ${line}`))
  }
  return { count: cells.length, findings }
}

// A figure of the chapter's run replaces the image of the page.
async function checkFigures(page) {
  const notDrawn = '.live-figure:not(:has(.drawing svg)) img'
  await page.waitForFunction(images => !document.querySelector(images), notDrawn, { timeout: 3000 }).catch(() => {})
  const images = await page.locator(notDrawn)
    .evaluateAll(images => images.map(image => image.src.split('/').at(-1)))
  const findings = []
  for (const image of images) {
    const slug = slugs.find(slug => image.startsWith(`${slug}_`))
    const command = `./learn ${parseInt(slug)}`
    if (isLong(command)) continue
    const { lines } = await nativeRun(command)
    const name = image.slice(slug.length + 1).split('.')[0]
    const isInRun = lines.map(line => JSON.parse(line)).some(event => event.type === 'figure' && event.name === name)
    if (isInRun) findings.push(`the figure ${name} of ${command} is not drawn`)
  }
  return findings
}

async function checkPrintedText(page) {
  const cell = page.locator('.live-cell:has(button[aria-pressed])').first()
  if (await cell.count() === 0) return []
  const button = cell.getByRole('button', { name: 'Printed text' })
  await button.click()
  const isShown = await cell.locator('.excerpt').isVisible()
  await button.click()
  const isLive = await cell.locator('.events').isVisible()
  return isShown && isLive ? [] : ['the button "Printed text" does not show the text, or not hide it']
}

async function checkLongRun(page) {
  const index = (await page.evaluate(readCells)).findIndex(({ command }) => isLong(command))
  if (index < 0) return []
  return (await checkStop(page.locator('.live-cell').nth(index))).map(line => `cell ${index + 1}: ${line}`)
}

// What a reader has typed as a prediction is there after a reload.
async function checkProgress(page) {
  const fields = page.locator('form.prediction input')
  const count = await fields.count()
  if (count === 0) return { count, findings: [] }
  await fields.first().fill('12.5')
  await page.reload({ waitUntil: 'networkidle' })
  const text = await fields.first().inputValue()
  return { count, findings: text === '12.5' ? [] : [`a prediction is "${text}" instead of "12.5" after a reload`] }
}

async function openPage(browser) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } })
  page.setDefaultTimeout(120_000) // other work may slow down the machine
  return page
}

async function checkPage(browser, origin, name) {
  const page = await openPage(browser)
  const problems = watch(page, origin)
  const findings = []
  const counts = { cells: 0, controls: 0, predictions: 0 }
  try {
    await page.goto(`${origin}/${name}`, { waitUntil: 'load' })
    await scrollThrough(page)
    await runAll(page)
    const found = await checkCells(page)
    counts.cells = found.count
    findings.push(...found.findings)
    findings.push(...await checkFigures(page))
    findings.push(...await checkPrintedText(page))
    findings.push(...await checkWidths(page))
    findings.push(...await checkAccessibility(page))
    const controls = await checkControls(page)
    counts.controls = controls.count
    findings.push(...controls.findings)
    findings.push(...await checkLongRun(page))
    findings.push(...await checkPlaygrounds(page, name))
    const predictions = await checkProgress(page)
    counts.predictions = predictions.count
    findings.push(...predictions.findings)
  } catch (error) {
    findings.push(`the check ended: ${error.message.split('\n')[0]}`)
  }
  await page.context().close()
  return { findings: [...new Set(problems), ...findings].map(line => `/${name}: ${line}`), counts }
}

// Prints the time until the first cell of page 01 shows its events.
async function measureInteractive(browser, origin) {
  const times = []
  for (let i = 0; i < 5; ++i) {
    const page = await openPage(browser)
    await page.goto(`${origin}/01_masking`, { waitUntil: 'commit' })
    const time = await page.waitForFunction(() => document.querySelector('.live-cell .events') && performance.now(),
      null, { polling: 'raf' })
    times.push(Math.round(await time.jsonValue()))
    await page.context().close()
  }
  console.log(`The first live cell of page 01 is ready after ${times.join(', ')} ms`)
}

// Follows links of the sidebar, without loading anew.
async function followLinks(browser, origin, addresses) {
  const page = await openPage(browser)
  const problems = watch(page, origin)
  const findings = []
  await page.goto(`${origin}/`, { waitUntil: 'load' })
  for (let address = addresses.shift(); address !== undefined; address = addresses.shift()) {
    await page.locator(`.VPSidebar a[href="${address}"]`).evaluate(link => link.click())
    await page.waitForURL(`**${address}`)
    await page.locator('main h1').waitFor()
    await scrollThrough(page)
    const failed = (await page.evaluate(readCells)).find(({ status }) => status === 'failed')
    if (failed) problems.push(`${failed.command}: ${failed.message}`)
    findings.push(...problems.splice(0).map(line => `below /book/: ${address}: ${line}`))
  }
  await page.context().close()
  return findings
}

// In a site below a path, the links of the sidebar lead to every page.
async function checkBelowPath(browser, folder) {
  const server = await serve({ '/book/': folder, '/book/programs/': join(site, 'programs') })
  const origin = `${server.origin}/book`
  const page = await openPage(browser)
  await page.goto(`${origin}/`, { waitUntil: 'load' })
  const addresses = await page.locator('.VPSidebar a').evaluateAll(links => links.map(link => link.getAttribute('href')))
  await page.context().close()
  if (addresses.length === 0) return ['below /book/: there are no links in the sidebar']
  const findings = await Promise.all([0, 1, 2].map(() => followLinks(browser, origin, addresses)))
  server.close()
  return findings.flat()
}

function buildBelowPath(folder) {
  const vitepress = join(root, 'docs/node_modules/.bin/vitepress')
  return promisify(execFile)(vitepress, ['build', '--outDir', folder],
    { cwd: join(root, 'docs'), env: { ...process.env, SITE_BASE: '/book/' } })
}

if (!existsSync(join(site, 'programs'))) fail(`${site} is not complete: ./learn site --build makes it`)
const began = Date.now()
const chosen = process.argv[2] // the beginning of a page's name, to check less
const names = readdirSync(site).filter(name => name.endsWith('.html') && name !== '404.html')
  .map(name => name.replace(/\.html$/, '').replace(/^index$/, ''))
  .filter(name => !chosen || name.startsWith(chosen))
if (names.length === 0) fail(`no page of ${site} has a name that begins with ${chosen}`)

const server = await serve({ '/': site })
const browser = await launch()
await measureInteractive(browser, server.origin)

const findings = []

const below = join(root, 'build/site_below_path')
const build = chosen ? null : buildBelowPath(below)
const total = { cells: 0, controls: 0, predictions: 0 }
async function checkRemaining(remaining) {
  for (let name = remaining.shift(); name !== undefined; name = remaining.shift()) {
    const began = Date.now()
    const result = await checkPage(browser, server.origin, name)
    findings.push(...result.findings)
    for (const [kind, count] of Object.entries(result.counts)) total[kind] += count
    if (process.env.TIMES) console.log(`/${name}: ${Date.now() - began} ms`)
  }
}
const remaining = [...names]
await Promise.all([0, 1, 2].map(() => checkRemaining(remaining)))
if (!chosen) {
  await build
  findings.push(...await checkBelowPath(browser, below))
  for (const [kind, count] of Object.entries(total)) if (count === 0) findings.push(`no page has ${kind}`)
}
await browser.close()
server.close()

for (const finding of findings) console.log(finding)
const seconds = Math.round((Date.now() - began) / 1000)
console.log(`${names.length} pages, ${total.cells} cells, ${total.controls} controls, ` +
  `${total.predictions} fields of predictions: ${findings.length} findings (${seconds} s)`)
process.exitCode = findings.length > 0 ? 1 : 0
