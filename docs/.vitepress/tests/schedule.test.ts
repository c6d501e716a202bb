import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { parseEvent } from '../live/events'
import { isRunning, isWaiting, readSchedule, scheduleArgs, type ServerRequest, type ServerSettings } from '../live/schedule'
import { nativeProgram } from './pages'

const settings: ServerSettings = { numPages: 5, pageSize: 4, maxStepTokens: 16, maxSequences: 2, isStatic: false, hasPrefixCache: false }
const request = (more: Partial<ServerRequest> = {}): ServerRequest => ({ shared: 0, prompt: 7, newTokens: 9, arrival: 1, ...more })

test('requests and settings as options', () => {
  const requests = [request(), request({ shared: 8 }), request({ arrival: 2 }), request({ arrival: 2, cancellation: 6 }), request({ cancellation: 3 })]
  expect(scheduleArgs(requests, settings)).toEqual(['--requests', '7+9 8+7+9 7+9@2 7+9@2-6 7+9@1-3', '--num-pages', '5', '--page-size', '4',
    '--max-step-tokens', '16', '--max-sequences', '2', '--no-prefix-cache'])
  expect(scheduleArgs([], { ...settings, isStatic: true, hasPrefixCache: true }).slice(-2)).toEqual(['2', '--static-batching'])
})

test('a step from its events; the last step of the program is a summary', () => {
  const events = [
    { type: 'step', number: 1, title: 'The step computes 4 of at most 12 tokens' },
    { type: 'text', text: 'Request 1 joins.' },
    { type: 'table', headings: ['request', 'state', 'prompt', 'new', 'cached', 'computed', 'pages'],
      rows: [['1', 'prefill', '11', '0 of 6', '8', '3', '0 1 6'], ['0', 'waits for pages', '7', '2 of 9', '', '', '']] },
    { type: 'table', headings: ['page', '0', '1'], rows: [['used by', '0,1', '.'], ['users', '2', '0'], ['tokens', '4', '4']] },
    { type: 'table', headings: ['page', '2'], rows: [['used by', '3'], ['users', '1'], ['tokens', '1']] },
    { type: 'step', number: 2, title: 'All steps: tokens of each request' },
    { type: 'table', headings: ['step', '1'], rows: [['request 0', '.']] },
  ]
  const steps = readSchedule(events.map(event => parseEvent(JSON.stringify(event))))
  expect(steps).toEqual([{
    title: 'The step computes 4 of at most 12 tokens',
    events: ['Request 1 joins.'],
    requests: [
      { number: 1, state: 'prefill', prompt: 11, newTokens: '0 of 6', cached: '8', count: 3, pages: '0 1 6' },
      { number: 0, state: 'waits for pages', prompt: 7, newTokens: '2 of 9', cached: '', count: 0, pages: '' },
    ],
    pages: [{ requests: [0, 1], users: 2, tokens: 4 }, { requests: [], users: 0, tokens: 4 }, { requests: [3], users: 1, tokens: 1 }],
  }])
  expect(steps[0].requests.map(isRunning)).toEqual([true, false])
  expect(steps[0].requests.map(isWaiting)).toEqual([false, true])
})

const program = nativeProgram('21_serving')
test.skipIf(!program)('the native program: the request that arrived last is preempted', () => {
  const output = execFileSync(program!, [...scheduleArgs([request(), request()], settings), '--json'], { encoding: 'utf8' })
  const steps = readSchedule(output.trim().split('\n').map(parseEvent))
  expect(steps).toHaveLength(16)
  expect(steps[2].requests.map(({ number, state, count }) => [number, state, count])).toEqual([[0, 'decode', 1], [1, 'preempted', 0]])
  expect(steps[2].pages.map(({ requests }) => requests)).toEqual([[0], [0], [], [], [0]])
  expect(steps[2].events).toEqual(['Request 1 is preempted: it gives back pages 2 3 and waits again.'])
})
