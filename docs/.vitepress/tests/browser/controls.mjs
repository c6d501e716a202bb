// Operates the controls of a page's cells.
import { compareCell, readCells } from './cells.mjs'
import { tolerance } from './events.mjs'
import { magnifiedPlaces } from './magnified.mjs'
import { runNatively, slugs, words } from './site.mjs'

export function commandOf(text) {
  const [, number, ...args] = words(text)
  return { slug: slugs.find(slug => parseInt(slug) === Number(number)) ?? number, args }
}

const nativeRuns = new Map()

export function nativeRun(text) {
  const run = nativeRuns.get(text) ?? runNatively(commandOf(text))
  nativeRuns.set(text, run)
  return run
}

// What a cell shows that the native program does not, and what it lacks.
export async function differencesOf(cell) {
  const native = await nativeRun(cell.command)
  if (compareCell(cell, native).length === 0) return []
  return compareCell(cell, native, await magnifiedPlaces(commandOf(cell.command), native, tolerance))
}

// Runs that take minutes: they are started and stopped.
export const isLong = command => command.startsWith('./learn 13') || command === './learn 14'

// Lets the page start what is due, and waits for the end of all runs.
export async function settle(page) {
  await page.waitForTimeout(100)
  await page.waitForFunction(() => !document.querySelector('.live-cell[data-status="running"]'), null,
    { polling: 50 })
  await page.waitForTimeout(50)
}

const runButton = cell => cell.getByRole('button', { name: 'Run', exact: true })
const stopsWithin = 5000 // milliseconds, with other work on the machine

// Shorter runs start by themselves. A busy machine may show late that a run is due.
async function runIfAsked(cell) {
  for (let attempt = 0; attempt < 3; ++attempt) {
    await cell.page().waitForTimeout(100)
    if (await runButton(cell).isVisible()) await runButton(cell).click()
    await settle(cell.page())
    const isDone = await cell.getAttribute('data-status') === 'failed' || await cell.locator('.events.outdated').count() === 0
    if (isDone) return
  }
}

// Starts a long run and stops it once it shows its progress.
export async function checkStop(cell) {
  await runButton(cell).click()
  try {
    await cell.locator('.progress-text').waitFor()
  } catch {
    return ['a long run shows no progress']
  }
  const began = Date.now()
  await cell.getByRole('button', { name: 'Stop', exact: true }).click()
  await runButton(cell).waitFor()
  const milliseconds = Date.now() - began
  const status = await cell.getAttribute('data-status')
  if (status !== 'stopped') return [`${status} after Stop`]
  return milliseconds > stopsWithin ? [`stopped only after ${milliseconds} ms`] : []
}

// In the page: gives a control another legal value, and returns it.
function operate(control) {
  const input = control.querySelector('input[type="range"]') ?? control.querySelector('input, select')
  if (input.type === 'checkbox') input.click()
  else {
    const low = input.min || '0'
    if (input.tagName === 'SELECT') input.value = [...input.options].map(({ value }) => value).find(value => value !== input.value)
    else if (input.type === 'range') input.value = input.value === input.min ? input.max : input.min
    else if (input.type === 'number') input.value = input.value === low ? String(Number(low) + 1) : low
    else input.value = input.value === '5,3' ? '3,5' : '5,3' // as text or as ids
    input.dispatchEvent(new Event('input', { bubbles: true }))
    input.dispatchEvent(new Event('change', { bubbles: true }))
  }
  return input.type === 'checkbox' ? input.checked : input.value
}

// A click is lost where the page moves below the pointer; a reader clicks again, too.
async function reset(page, index, control, command) {
  const button = control.getByRole('button', { name: /^Reset/ })
  for (let attempt = 0; attempt < 3; ++attempt) {
    if (await button.isVisible()) await button.click()
    await settle(page)
    if ((await page.evaluate(readCells))[index].command === command) return
  }
}

// After a change, the cells show what the native program prints with the changed command, or its
// rejection.
async function checkChanged(page, index, before, where) {
  const cell = (await page.evaluate(readCells))[index]
  if (cell.command === before.command) return [`${where} does not change the command`]
  if (isLong(cell.command)) return []
  const native = await nativeRun(cell.command)
  if (native.code !== 0) return cell.message === native.error ? [] : [`${where}: shows "${cell.message}" instead of "${native.error}"`]
  if (cell.status !== 'done') return [`${where}: the run of ${cell.command} is ${cell.status}: ${cell.message}`]
  return (await differencesOf({ ...cell, excerpt: [] })).map(line => `${where}: ${cell.command}: ${line}`)
}

// Above the highest value, the program rejects, and the cell shows the program's line.
async function checkRejection(page, index, control, where) {
  const field = control.locator('input[type="number"]')
  if (await field.count() === 0) return []
  const highest = await field.getAttribute('max')
  if (!highest) return []
  await field.fill(String(Number(highest) + 1))
  await field.dispatchEvent('change')
  await runIfAsked(page.locator('.live-cell').nth(index))
  const cell = (await page.evaluate(readCells))[index]
  const native = await nativeRun(cell.command)
  if (native.code !== 2) return [`${where}: ${cell.command} ends natively with ${native.code}, not with a rejection`]
  return cell.message === native.error ? [] : [`${where}: rejected, but the cell shows "${cell.message}" instead of "${native.error}"`]
}

// Returns the number of controls and what is wrong with them.
export async function checkControls(page) {
  const findings = []
  const before = await page.evaluate(readCells)
  let count = 0
  for (const index of before.keys()) {
    const cell = page.locator('.live-cell').nth(index)
    for (const control of await cell.locator('.control').all()) {
      ++count
      const name = (await control.locator('label').first().textContent()).trim()
      const where = `cell ${index + 1}, control ${name}`
      await control.evaluate(operate)
      if (!isLong(before[index].command)) await runIfAsked(cell)
      findings.push(...await checkChanged(page, index, before[index], where))
      findings.push(...await checkRejection(page, index, control, where))
      await reset(page, index, control, before[index].command)
      const after = (await page.evaluate(readCells))[index]
      if (after.command !== before[index].command) findings.push(`${where}: reset leaves ${after.command}`)
    }
  }
  return { count, findings }
}
