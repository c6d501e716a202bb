import { expect, test } from 'vitest'
import { changedArgs, commandText, givenValue, isSlow, splitWords } from '../live/command'

test('double quotes keep words together', () => {
  expect(splitWords('$ ./learn 11 --prompt "And the LORD" --quiet'))
    .toEqual(['$', './learn', '11', '--prompt', 'And the LORD', '--quiet'])
})

test('a command as the reader types it', () => {
  expect(commandText({ slug: '05_gqa', args: ['--seq-len', '6'] })).toBe('./learn 5 --seq-len 6')
  expect(commandText({ slug: 'walk', args: ['--layer', '1'] })).toBe('./learn walk --layer 1')
  expect(commandText({ slug: '11_generation', args: ['--prompt', 'And the'] })).toBe('./learn 11 --prompt "And the"')
})

test('changes replace, add and remove options', () => {
  expect(changedArgs(['--seq-len', '6', '--bias'], { '--seq-len': '8', '--bias': false, '--qk-norm': true }))
    .toEqual(['--seq-len', '8', '--qk-norm'])
})

test('the value of an option, or true for a flag', () => {
  const args = ['--temperature', '0', '--no-cache', '--quiet']
  expect(givenValue(args, '--temperature')).toBe('0')
  expect(givenValue(args, '--no-cache')).toBe(true)
  expect(givenValue(args, '--seed')).toBeUndefined()
})

test('training is slow, attention is not', () => {
  expect(isSlow({ slug: '13_training', args: [] })).toBe(true)
  expect(isSlow({ slug: '05_gqa', args: [] })).toBe(false)
  expect(isSlow({ slug: '07_rmsnorm_vs_layernorm', args: ['--measure'] })).toBe(true)
})
