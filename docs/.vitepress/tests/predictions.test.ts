import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { readChapters, root } from '../chapters'
import { isRight, numberOf } from '../live/prediction'
import { readAnswers } from '../markdown/predictions'

test('every exercise "predict" of a page has an answer in solution.cpp', () => {
  for (const chapter of readChapters()) {
    const page = readFileSync(resolve(root, 'docs', `${chapter.slug}.md`), 'utf8')
    const asked = [...page.matchAll(/^### Exercise (\d+\.\d+) — predict/gm)].map(match => match[1])
    expect(readAnswers(chapter).map(({ exercise }) => exercise)).toEqual(asked)
  }
})

test('answers are read as numbers, matrices and strings, with tolerance and explanation', () => {
  const answers = readChapters().flatMap(readAnswers)
  const answer = (exercise: string) => answers.find(other => other.exercise === exercise)!
  expect(answer('5.1').rows).toEqual([[8, 2, 5, 0]])
  expect(answer('5.1').tolerance).toBe(0.002)
  expect(answer('5.2').rows).toEqual([[6]])
  expect(answer('5.3').tolerance).toBe(0)
  expect(answer('2.2').rows).toEqual([[8320, 2080, 2080, 8192]])
  expect(answer('7.1').rows).toEqual([[-1, -1, 1, 1], [0.2, 0.2, 1.4, 1.4]])
  expect(answer('10.1').rows).toEqual([['in', 'ing', 'sing']])
  expect(answer('13.8').rows[0][1]).toBeCloseTo(-3 / 7)
  expect(answer('5.3').why).toBe('G = 32 / 8 = 4 adjacent query heads share one: h / 4, rounded down.')
})

test('numbers may be fractions and have a minus sign', () => {
  expect(['0.5', '-1/3', '−2', '1e-3', ' 4 '].map(numberOf)).toEqual([0.5, -1 / 3, -2, 0.001, 4])
  for (const text of ['', '/2', '1/', '1/2/3', 'four', '1,5']) expect(numberOf(text)).toBeNaN()
})

test('a prediction may differ by the tolerance, relative to the largest element above 1', () => {
  expect(isRight('7.991', 8, 8, 0.002)).toBe(true)
  expect(isRight('7.9', 8, 8, 0.002)).toBe(false)
  expect(isRight('0.24', 0.25, 0.75, 0.01)).toBe(true)
  expect(isRight('0.23', 0.25, 0.75, 0.01)).toBe(false)
  expect(isRight('4', 3, 3, 0)).toBe(false)
  expect(isRight('', 0, 0, 0.01)).toBe(false)
  expect(isRight(' ing', 'ing', 0, 0)).toBe(true)
})
