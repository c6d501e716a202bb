// Uses the page of ./learn serve as a reader would: asks, follows up, stops an answer, begins again,
// and enters an API key. It must request nothing from other hosts, and axe-core must find no serious
// problem. Exits with 77 if there is no server. Usage: node check_chat.mjs
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { sleep, startServer } from '../../../../tests/support/serve_process.mjs'
import { launch, root } from './site.mjs'

const program = join(root, 'build/serve')
if (!existsSync(program)) {
  console.log('skipped: build/serve is missing')
  process.exit(77)
}
const axe = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

let failures = 0
function check(title, passed, detail = '') {
  console.log(`${passed ? 'passed' : 'FAILED'}: ${title}${passed ? '' : ` (${detail})`}`)
  if (!passed) ++failures
}

// A new tab with the page of a server; `foreign` collects requests to other hosts, and errors.
async function open(browser, server, options = {}) {
  const page = await browser.newPage(options)
  page.setDefaultTimeout(20_000)
  page.foreign = []
  page.on('request', request => request.url().startsWith(server.url) || request.url().startsWith('data:') || page.foreign.push(request.url()))
  page.on('pageerror', error => page.foreign.push(error.message))
  await page.goto(server.url)
  return page
}
const lines = page => page.locator('#log p span').allTextContents()
async function ask(page, text) {
  await page.fill('#text', text)
  await page.press('#text', 'Enter')
  await page.waitForFunction(() => document.getElementById('stop').disabled)
  return (await lines(page)).at(-1)
}

async function conversation(browser, server) {
  const page = await open(browser, server)
  await page.waitForFunction(() => document.getElementById('model').textContent === 'wordnet_calculator')
  check('the shipped model decodes greedily', (await page.inputValue('#temperature')) === '0')
  const sum = await ask(page, 'What is 47 + 38?')
  check('a question is answered', sum === '47 + 38 = 85', sum)
  const call = await page.locator('#log i').last().textContent()
  check('the call of the calculator is shown', call === '(calculator: 47 + 38 = 85)', call)
  const follow_up = await ask(page, 'And 5 more?')
  check('the answer knows the question before', follow_up === '85 + 5 = 90', follow_up)
  check('the questions stay on the page', (await lines(page)).length === 4, await lines(page))
  const spelled = []
  for (const word of ['house', 'river', 'garden', 'kitchen', 'window', 'table'])
    spelled.push(await ask(page, `Spell ${word}.`) === `${word} is spelled ${[...word].join('-')}.`)
  check('a long conversation goes on, and most of its words are spelled right', spelled.filter(Boolean).length >= 4, spelled)
  const note = await page.textContent('#note')
  check('the oldest messages are dropped, and the page says so', note.startsWith('The oldest messages are dropped'), note)
  const results = await page.evaluate(() => ['(3 + 4) * 5', '-6 / 4 - 1', '2 / 3', '1 / 0', '2 +', '2 3', '(2', 'x', '1e3', '9999999999999999']
    .map(expression => resultOf({ function: { arguments: JSON.stringify({ expression }) } })[1]))
  check('the page calculates as the programs do', `${results}` === '35,-2.5,0.666666666667,error: calculator: division by zero,' +
    'error: calculator: expected a number,error: calculator: expected an operator,error: calculator: expected ")",' +
    'error: calculator: expected a number,error: calculator: expected an operator,error: calculator: a number is above 10^15', results)

  await page.click('#clear')
  check('a new conversation is empty', (await lines(page)).length === 0, await lines(page))
  const shown = await page.evaluate(() => {
    const line = show('assistant', '<img src=x onerror="document.title=1">')
    return [line.children.length, document.title]
  })
  check('a text is shown as text, not as HTML', `${shown}` === '0,Chat', shown)
  check('it loads nothing from elsewhere', page.foreign.length === 0, page.foreign)
  await page.close()
}

// Stop must work before the first token, too.
async function stop(browser, server) {
  const page = await open(browser, server)
  await page.route('**/v1/chat/completions', route => setTimeout(() => route.abort().catch(() => {}), 60_000))
  await page.fill('#text', 'Spell kitchen.')
  await page.press('#text', 'Enter')
  await page.waitForFunction(() => !document.getElementById('stop').disabled)
  await page.click('#stop')
  await page.waitForFunction(() => document.getElementById('stop').disabled)
  const text = await page.inputValue('#text')
  check('a question without an answer comes back into the field', text === 'Spell kitchen.' && (await lines(page)).length === 0, text)
  await page.unroute('**/v1/chat/completions')
  check('it can be sent again', (await ask(page, text)).includes('k-i-t-c-h-e-n'), await lines(page))
  await page.close()
}

async function apiKey(browser) {
  const server = await startServer(program, '--api-key', 'secret')
  const page = await open(browser, server)
  await page.waitForFunction(() => document.getElementById('note').textContent.startsWith('Enter the API key'))
  await ask(page, 'What is 1 + 1?')
  const note = await page.textContent('#note')
  check('without the key, the page says so', /API key/.test(note) && (await lines(page)).length === 0, note)
  await page.fill('#key', 'secret')
  await page.fill('#temperature', '0')
  const sum = await ask(page, 'What is 1 + 1?')
  check('with the key, it answers', sum === '1 + 1 = 2', sum)
  await page.close()
  server.child.kill('SIGINT')
}

async function accessibility(browser, server) {
  for (const colorScheme of ['light', 'dark'])
    for (const width of [360, 1280]) {
      const page = await open(browser, server, { colorScheme, viewport: { width, height: 800 } })
      await ask(page, 'What is 2 + 2?')
      await page.addScriptTag({ path: axe })
      const findings = await page.evaluate(async () => (await window.axe.run()).violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id }) => id))
      check(`axe-core finds nothing, ${colorScheme}, ${width} pixels`, findings.length === 0, findings)
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      check(`it fits into ${width} pixels, ${colorScheme}`, overflow <= 0, overflow)
      await page.close()
    }
}

const server = await startServer(program)
const browser = await launch()
await conversation(browser, server)
await stop(browser, server)
await apiKey(browser)
await accessibility(browser, server)
await sleep(100)
const metrics = await (await fetch(`${server.url}/metrics`)).text()
check('the server holds no page', /^llm_pages_used 0$/m.test(metrics), metrics)
await browser.close()
server.child.kill('SIGINT')
process.exit(failures > 0 ? 1 : 0)
