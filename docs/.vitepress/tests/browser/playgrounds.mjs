// Uses each playground as a reader would: async element => list of findings.
import { runNatively, words } from './site.mjs'

const eventsOf = ({ lines }) => lines.map(line => JSON.parse(line))
const trimmed = text => text.trim().replace(/\s+/g, ' ')

// A playground runs its program shortly after a change.
async function settle(element) {
  const page = element.page()
  await page.waitForTimeout(600)
  await page.waitForFunction(element => element.getAttribute('aria-busy') !== 'true',
    await element.elementHandle(), { polling: 50 })
  await page.waitForTimeout(100)
}

// Begins with the page's own text before any program runs; another text, an earlier word and a
// chosen next word give the native program's numbers; keys move from box to box.
async function checkWalk(element) {
  const findings = []
  const next = () => element.locator('.next button.bar').allTextContents()
  const expected = async (...args) => {
    const events = eventsOf(await runNatively({ slug: 'walk', args }))
    const { rows } = events.find(({ type, headings }) => type === 'table' && headings[0] === 'next')
    return rows.map(([word, , , p]) => ({ word, p: Number(p) }))
  }
  const compare = async (what, ...args) => {
    const shown = (await next()).map(trimmed)
    const native = await expected(...args)
    const same = native.every(({ word, p }, i) => shown[i]?.startsWith(word) &&
      Math.abs(parseFloat(shown[i].slice(word.length)) / 100 - p) < 0.006)
    if (!same) findings.push(`${what}: ${shown.join(', ')} instead of ${JSON.stringify(native)}`)
  }
  await compare('at first')
  await element.locator('input[type="text"]').fill('And the king of')
  await element.locator('input[type="text"]').press('Enter')
  await settle(element)
  await compare('another text', '--prompt', 'And the king of')
  await element.locator('.words button.chip').nth(2).click()
  await settle(element)
  await compare('an earlier word', '--prompt', 'And the king')
  await element.locator('.words button.chip').nth(3).click()
  await settle(element)
  const [{ word }] = await expected('--prompt', 'And the king of')
  await element.locator('.next button.bar').first().click()
  await settle(element)
  await compare('the chosen word', '--prompt', `And the king of ${word}`)
  await element.getByRole('tab').first().focus()
  await element.page().keyboard.press('End')
  const tabs = await element.getByRole('tab').count()
  const heading = trimmed(await element.locator('.detail .heading').textContent())
  return heading.startsWith(`${tabs}. `) ? findings : [...findings, `the key End shows ${heading} of ${tabs}`]
}

// Encodes what is typed as the native program does, and shows the merges of a word.
async function checkTokenizer(element) {
  const text = 'Let there be a naïve light'
  await element.locator('textarea').fill(text)
  await settle(element)
  const ids = await element.locator('.chips').first().locator('.chip small').allTextContents()
  const native = await runNatively({ slug: '10_tokenizer', args: ['--encode', text] })
  const { text: pairs } = eventsOf(native).find(({ type, text }) => type === 'text' && text.startsWith('ids and tokens: '))
  const expected = [...pairs.matchAll(/(\d+):/g)].map(match => Number(match[1]))
  await element.locator('button.chip').last().click()
  const merges = await element.locator('tbody tr').count()
  return [
    ...(ids.map(Number).join() === expected.join() ? [] : [`encodes to ${ids} instead of ${expected}`]),
    ...(merges > 1 ? [] : ['shows no merges']),
  ]
}

// Generates the native program's text; a generated token has attention weights and a logit lens.
async function checkGeneration(element) {
  const prompt = 'In the beginning'
  await element.locator('input[type="text"]').fill(prompt)
  await element.getByRole('button', { name: 'Generate', exact: true }).click()
  await settle(element)
  const shown = (await element.locator('button.token').allTextContents()).map(trimmed)
  const args = ['--prompt', prompt, '--max-new-tokens', '24', '--temperature', '0.8', '--top-k', '0', '--top-p', '0.9', '--seed', '77']
  const table = eventsOf(await runNatively({ slug: '11_generation', args }))
    .find(({ type, headings }) => type === 'table' && headings.join().startsWith('position,token,p'))
  const expected = table.rows.map(([, token]) => token.replace('▁', ' ').replace('\\n', '↵').trim())
  const findings = shown.join(' ') === expected.join(' ') ? [] : [`generates "${shown.join(' ')}" instead of "${expected.join(' ')}"`]
  await element.locator('button.token').nth(5).click()
  await settle(element)
  const before = await element.locator('table').count()
  return before > 0 ? findings : [...findings, 'shows nothing for a chosen token']
}

// The score depends on the distance of the two tokens alone.
async function checkRope(element) {
  const scoreAt = async (query, key) => {
    const sliders = element.locator('input[type="range"]')
    await sliders.nth(0).fill(String(query))
    await sliders.nth(1).fill(String(key))
    await settle(element)
    return Number(await element.locator('strong').textContent())
  }
  const near = await scoreAt(10, 7)
  const moved = await scoreAt(50, 47)
  const far = await scoreAt(50, 7)
  return [
    ...(Math.abs(near - moved) < 0.011 ? [] : [`the score at distance 3 is ${near} and, moved by 40, ${moved}`]),
    ...(near !== far ? [] : [`the score is ${near} at distances 3 and 43`]),
  ]
}

// The weights of the keys that the mask allows sum to 1; the context is the weighted sum of values.
async function checkAttention(element) {
  await element.locator('input[type="text"]').fill('the king said unto')
  await settle(element)
  await element.locator('button.chip').nth(1).click()
  await settle(element)
  const rows = await element.locator('tbody tr').evaluateAll(rows => rows.map(row => [...row.cells].map(cell => cell.textContent)))
  const numbers = rows.map(row => row.map(text => Number(text.replace('−', '-'))))
  const context = numbers.pop()
  const sum = numbers.reduce((sum, row) => sum + row[3], 0)
  const first = numbers.reduce((sum, row) => sum + row[3] * row[4], 0)
  const masked = numbers.slice(2).every(row => row[3] === 0)
  return [
    ...(Math.abs(sum - 1) < 0.021 ? [] : [`the weights sum to ${sum}`]),
    ...(masked ? [] : ['a future key has a weight']),
    ...(Math.abs(first - context[1]) < 0.1 ? [] : [`the context is ${context[1]} instead of ${first}`]),
  ]
}

// Trains, stops after the first save at step 100, and goes on from there.
async function checkTraining(element) {
  const page = element.page()
  const status = element.locator('.label[role="status"]')
  const reach = async step => page.waitForFunction(([status, step]) => Number(/Step (\d+)/.exec(status.textContent)?.[1]) >= step,
    [await status.elementHandle(), step], { polling: 50 })
  const stop = element.getByRole('button', { name: 'Stop', exact: true })
  await element.getByRole('button', { name: 'Train', exact: true }).click()
  await element.locator('progress').waitFor()
  await reach(110)
  await stop.click()
  await element.getByRole('button', { name: 'Go on from step 100' }).click()
  await reach(102)
  await stop.click()
  const samples = await element.locator('code').count()
  return samples === 1 ? [] : [`shows ${samples} samples instead of 1`]
}

// Answers as the native program does, with a probability for each token.
async function checkAnswer(element) {
  const question = 'What is 20 + 31?'
  await element.locator('input[type="text"]').fill(question)
  await element.getByRole('button', { name: 'Ask', exact: true }).click()
  await settle(element)
  const answer = trimmed(await element.locator('strong').textContent())
  const events = eventsOf(await runNatively({ slug: '14_fine_tuning', args: ['--ask', question] }))
  const expected = events.find(({ type, name }) => type === 'value' && name === 'answer').text
  const { rows } = events.find(({ type }) => type === 'table')
  const shown = await element.locator('tbody tr').count()
  return [
    ...(answer === expected ? [] : [`answers "${answer}" instead of "${expected}"`]),
    ...(shown === rows.length ? [] : [`shows ${shown} tokens instead of ${rows.length}`]),
  ]
}

// Each example, a new request, a canceled one and other settings show what the native program prints
// for the command below; a request that cannot be served is taken back.
async function checkServing(element) {
  const findings = []
  const button = name => element.getByRole('button', { name, exact: true })
  const texts = selector => element.locator(selector).evaluateAll(found => found.map(({ textContent }) => textContent.trim()))
  const slide = async (label, value) => {
    await element.getByRole('slider', { name: new RegExp(`^${label}`) }).fill(String(value))
    await settle(element)
  }
  const compare = async (what) => {
    const [command] = await texts('.command code')
    const events = eventsOf(await runNatively({ slug: '21_serving', args: words(command).slice(2) }))
    const begins = events.flatMap(({ type }, i) => (type === 'step' ? [i] : []))
    const number = Number((await texts('.position'))[0].split(' ')[0])
    const step = events.slice(begins[number - 1], begins[number])
    const tables = heading => step.filter(({ type, headings }) => type === 'table' && headings[0] === heading)
    const expected = {
      steps: `${number} of ${begins.length - 1}`,
      news: [`${step[0].title}.`, ...step.filter(({ type }) => type === 'text').map(({ text }) => text)],
      tables: tables('request')[0].rows.sort((a, b) => a[0] - b[0]).map(row => row[6]),
      users: tables('page').flatMap(({ rows }) => rows[0].slice(1).map((users, i) =>
        users !== '.' ? users.replaceAll(',', '') : Number(rows[2][i + 1]) > 0 ? 'kept' : '')),
    }
    const shown = {
      steps: (await texts('.position'))[0],
      news: await texts('[role=status] p'),
      tables: await texts('.requests td.table'),
      users: await texts('.page .users'),
    }
    for (const [part, value] of Object.entries(expected)) {
      if (String(shown[part]) !== String(value)) findings.push(`${what}: ${part} ${JSON.stringify(shown[part])} instead of ${JSON.stringify(value)}`)
    }
  }
  const examples = await texts('.chips button')
  for (const example of examples.slice(0, -1)) {
    await button(example).click()
    await settle(element)
    for (let n = 0; n < 4; ++n) await button('Step →').click()
    await compare(example)
  }
  await button('Preemption').click()
  await settle(element)
  await button('Add request').click()
  await settle(element)
  for (let n = 0; n < 3; ++n) await button('Step →').click()
  await compare('a new request')
  await button('Cancel request 0').click()
  await settle(element)
  await button('Step →').click()
  await compare('a canceled request')
  await slide('pages', 9)
  await element.getByLabel('prefix cache').check()
  await settle(element)
  await compare('more pages')
  await slide('prompt', 60)
  await button('Add request').click()
  await settle(element)
  const [message] = await texts('.message')
  if (!message?.includes('there are 9')) findings.push(`a request that is too long gives the message ${message}`)
  await slide('sequences', 3)
  await compare('after a request that is too long')
  await button(examples.at(-1)).click()
  const numPages = await element.locator('.page.unused').count()
  return numPages === 12 ? findings : [...findings, `an empty server has ${numPages} unused pages`]
}

// With each number of ranks, the last step shows what the native program has after the all-gather, and the
// one in the middle what it has after the reduce-scatter.
async function checkRing(element) {
  const findings = []
  const slide = async (label, value) => {
    await element.getByRole('slider', { name: label }).fill(String(value))
    await settle(element)
  }
  for (const ranks of [2, 5, 3]) {
    await slide('ranks', ranks)
    const events = eventsOf(await runNatively({ slug: '24_parallel', args: ['--only', '2', '--ranks', String(ranks)] }))
    for (const [name, step] of [['before', 0], ['after_reduce_scatter', ranks - 1], ['after_all_gather', 2 * ranks - 2]]) {
      await slide('step', step)
      const shown = await element.locator('td').allTextContents()
      const { values } = events.find(event => event.type === 'tensor' && event.name === name)
      if (shown.join() !== values.join()) findings.push(`${ranks} ranks, ${name}: ${shown} instead of ${values}`)
    }
    const complete = await element.locator('td.complete').count()
    if (complete !== ranks * ranks) findings.push(`${ranks} ranks: ${complete} numbers are complete`)
  }
  return findings
}

// Each mesh has the native program's bytes and seconds, a mesh that does not fit has its error, and one
// with more ranks than GPUs is not run.
async function checkMesh(element) {
  const findings = []
  const slide = async (label, power) => {
    await element.getByRole('slider', { name: label }).fill(String(power))
    await settle(element)
  }
  for (const [model, gpus, tensor, pipeline] of [['llama_3.1_70b', 9, 3, 2], ['llama_3.1_8b', 6, 1, 0], ['llama_3.2_1b', 9, 0, 5]]) {
    await element.locator('select').selectOption(model)
    for (const [label, power] of [['stages', 0], ['tensor ranks', 0], ['GPUs', gpus], ['tensor ranks', tensor], ['stages', pipeline]])
      await slide(label, power)
    const mesh = `data=${2 ** (gpus - tensor - pipeline)},pipeline=${2 ** pipeline},tensor=${2 ** tensor}`
    const native = await runNatively({ slug: '28_model_parallel', args: ['--config', model, '--seq-len', '4096', '--mesh', mesh] })
    const message = await element.locator('.message').allTextContents()
    if (native.error) {
      if (message.join() !== native.error) findings.push(`${mesh}: "${message}" instead of "${native.error}"`)
      continue
    }
    const events = eventsOf(native)
    const rows = heading => events.find(({ type, headings }) => type === 'table' && headings[0] === heading).rows
    const shown = await element.locator('td').allTextContents()
    const sent = rows('axis').flatMap(([axis, group, , what, megabytes]) => [axis, group, what, megabytes])
    if (shown.join() !== sent.join()) findings.push(`${mesh}: ${shown} instead of ${sent}`)
    const labels = await element.locator('.network .label').allTextContents()
    const seconds = rows('between machines').map(row => `${row[0]}: ${row.at(-1)} s`)
    if (labels.join() !== seconds.join()) findings.push(`${mesh}: ${labels} instead of ${seconds}`)
  }
  await slide('GPUs', 3)
  const message = await element.locator('.message').allTextContents()
  if (!message.join().includes('need more than 8 GPUs')) findings.push(`8 GPUs: "${message}"`)
  await slide('stages', 0)
  return findings
}

// Keeps what three steps verified: the text and the rows are those of the native program.
async function checkSpeculation(element) {
  const findings = []
  let text = 'And the king said'
  await element.locator('textarea').fill(text)
  await element.getByRole('slider', { name: 'layers' }).fill('3')
  for (let step = 1; step <= 3; ++step) {
    await settle(element)
    const args = ['--only', '2', '--prompt', text, '--draft-layers', '3', '--num-proposals', '4']
    const { rows } = eventsOf(await runNatively({ slug: '22_speculation', args }))
      .find(({ type, headings }) => type === 'table' && headings[0] === 'position')
    const shown = await element.locator('td').allTextContents()
    const native = [1, 2, 3].flatMap(column => rows.map(row => row[column]))
    if (shown.join() !== native.join()) findings.push(`step ${step}: ${shown} instead of ${native}`)
    await element.getByRole('button', { name: 'Keep' }).click()
    text += rows.filter(row => row[3] !== 'not used').map(row => row[2]).join('').replace(/▁/g, ' ')
    if (await element.locator('textarea').inputValue() !== text) findings.push(`step ${step}: the text is not "${text}"`)
  }
  const status = await element.locator('[role="status"]').textContent()
  return status.includes('in 3 steps') ? findings : [...findings, `after three steps: ${status}`]
}

// The rows of an example and of another text are the native program's, and a text that does not fit is rejected.
async function checkMask(element) {
  const findings = []
  await element.getByRole('button', { name: 'one of three' }).click()
  for (const text of ['"gre', '"red"', '']) {
    await element.locator('input').fill(text)
    await settle(element)
    const args = ['--schema', await element.locator('textarea').inputValue(), ...(text ? ['--text', text] : [])]
    const { rows } = eventsOf(await runNatively({ slug: '23_structured_output', args })).find(({ type }) => type === 'table')
    const shown = await element.locator('tbody tr').evaluateAll(rows => rows.map(row => [0, 1, 3].map(i => row.cells[i].textContent)))
    if (shown.join() !== rows.join()) findings.push(`${text}: ${shown} instead of ${rows}`)
  }
  await element.locator('input').fill('"blue')
  await settle(element)
  const message = await element.locator('.message').textContent()
  if (!message.includes('is not allowed after')) findings.push(`a text that does not fit: ${message}`)
  await element.locator('input').fill('"gre')
  await settle(element)
  return findings
}

// A name with hidden letters and a misspelled one: the rows are the native program's; a digit is rejected.
async function checkNames(element) {
  const findings = []
  for (const [name, option] of [['b_rb_ra', '--fill'], ['stefany', '--query'], ['jo_n', '--fill']]) {
    await element.locator('input').fill(name)
    await settle(element)
    const { rows } = eventsOf(await runNatively({ slug: '25_encoders', args: [option, name] })).find(({ type }) => type === 'table')
    const shown = await element.locator('td').allTextContents()
    if (shown.join() !== rows.flat().join()) findings.push(`${name}: ${shown} instead of ${rows}`)
  }
  await element.locator('input').fill('j0hn')
  await settle(element)
  const message = await element.locator('.message').textContent()
  if (!message.includes("not '0'")) findings.push(`a digit: ${message}`)
  await element.locator('input').fill('jonh')
  await settle(element)
  return findings
}

// Loads the program with the first question alone. The rows are the native program's, and another question
// has others; links lead to headings that exist; what cannot be searched for gives one line.
async function checkAsk(element) {
  const findings = []
  const page = element.page()
  const isLoaded = () => page.evaluate(() => performance.getEntriesByType('resource').some(({ name }) => name.includes('/programs/ask')))
  if (await isLoaded()) findings.push('the program is loaded before a question')
  const ask = async (question) => {
    await element.locator('input').fill(question)
    await element.locator('input').press('Enter')
    await settle(element)
    return runNatively({ slug: 'ask', args: ['--question', question, '--scores', '--count', '8'] })
  }
  const shownRows = () => element.locator('tbody tr').evaluateAll(rows => rows.map(({ cells }) =>
    [...cells].flatMap(cell => (cell.children.length > 0 ? [...cell.children] : [cell]).map(({ textContent }) => textContent))))
  for (const [question, note] of [['why divide by the root of D?', ''], ['What is a KV cache?', ''], ['xyzzy qwxz', 'vectors alone']]) {
    const events = eventsOf(await ask(question))
    const begins = events.filter(({ type }) => type === 'value').map(({ text }) => text)
    const { rows } = events.find(({ type }) => type === 'table')
    const expected = rows.map((row, i) => [...row, begins[i]])
    const shown = await shownRows()
    if (shown.join() !== expected.join()) findings.push(`${question}: ${shown} instead of ${expected}`)
    const status = await element.locator('[role="status"]').textContent()
    if (!status.includes(note || question)) findings.push(`${question}: the line above the table is "${status}"`)
  }
  for (const link of await element.locator('tbody a').evaluateAll(links => links.map(({ href }) => href))) {
    const { pathname, hash } = new URL(link)
    const text = await page.evaluate(async path => (await fetch(path)).text(), pathname)
    if (!text.includes(`id="${decodeURIComponent(hash.slice(1))}"`)) findings.push(`there is no heading at ${link}`)
  }
  for (const question of ['', 'What is a KV cache? '.repeat(100)]) {
    const { error } = await ask(question)
    const message = await element.locator('.message').textContent()
    const count = await element.locator('tbody tr').count()
    if (message !== error || count > 0) findings.push(`${question.slice(0, 20)}: "${message}" and ${count} rows instead of "${error}"`)
  }
  await ask('loss')
  return findings
}

// Those of each page, in its order.
const checks = {
  '': checkWalk, // the first page
  'walk_through': checkWalk,
  '04_rope': checkRope,
  '05_gqa': checkAttention,
  '10_tokenizer': checkTokenizer,
  '11_generation': checkGeneration,
  '13_training': checkTraining,
  '14_fine_tuning': checkAnswer,
  '21_serving': checkServing,
  '22_speculation': checkSpeculation,
  '23_structured_output': checkMask,
  '24_parallel': checkRing,
  '25_encoders': [checkNames, checkAsk],
  '28_model_parallel': checkMesh,
}

// These pages have playgrounds, and no other page has one.
export async function checkPlaygrounds(page, name) {
  const playgrounds = page.locator('.playground')
  const count = await playgrounds.count()
  const ofPage = [checks[name] ?? []].flat()
  if (count !== ofPage.length) return [`has ${count} playgrounds`]
  const findings = []
  for (const [i, check] of ofPage.entries()) {
    const element = playgrounds.nth(i)
    await element.scrollIntoViewIfNeeded()
    findings.push(...await check(element), ...await element.locator('.message').allTextContents())
  }
  return findings.map(line => `playground: ${line}`)
}
