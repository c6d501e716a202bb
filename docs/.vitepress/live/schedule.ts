// The schedule that chapter 21's program prints with --requests, and the options that ask for it.
import type { LiveEvent, TableEvent } from './events'

export interface ServerRequest {
  shared: number // first tokens of the prompt, the same in all requests
  prompt: number // its other tokens
  newTokens: number
  arrival: number // the step before which it arrives
  cancellation?: number // the step before which it is canceled
}

export interface ServerSettings {
  numPages: number
  pageSize: number
  maxStepTokens: number
  maxSequences: number
  isStatic: boolean
  hasPrefixCache: boolean
}

// "8+5+9@2-6", as chapters/21_serving/simulation/requests.hpp describes it.
function requestText({ shared, prompt, newTokens, arrival, cancellation }: ServerRequest): string {
  const tokens = [...(shared > 0 ? [shared] : []), prompt, newTokens].join('+')
  const steps = cancellation === undefined ? [arrival] : [arrival, cancellation]
  return arrival === 1 && steps.length === 1 ? tokens : `${tokens}@${steps.join('-')}`
}

export function scheduleArgs(requests: readonly ServerRequest[], settings: ServerSettings): string[] {
  return ['--requests', requests.map(requestText).join(' '),
    '--num-pages', String(settings.numPages), '--page-size', String(settings.pageSize),
    '--max-step-tokens', String(settings.maxStepTokens), '--max-sequences', String(settings.maxSequences),
    ...(settings.isStatic ? ['--static-batching'] : []), ...(settings.hasPrefixCache ? [] : ['--no-prefix-cache'])]
}

export interface ScheduledRequest {
  number: number
  state: string
  prompt: number
  newTokens: string // "2 of 9"
  cached: string // empty unless it runs
  count: number // tokens that the step computes
  pages: string
}

export interface ScheduledPage {
  requests: number[] // that use it
  users: number
  tokens: number // without users: that the prefix cache remembers
}

export interface ScheduleStep {
  title: string
  events: string[]
  requests: ScheduledRequest[] // running, waiting, then the others
  pages: ScheduledPage[]
}

export const isRunning = ({ pages }: ScheduledRequest) => pages !== ''
export const isWaiting = ({ state }: ScheduledRequest) => state.startsWith('waits') || state === 'preempted'

function readRequests({ rows }: TableEvent): ScheduledRequest[] {
  return rows.map(([number, state, prompt, newTokens, cached, count, pages]) =>
    ({ number: Number(number), state, prompt: Number(prompt), newTokens, cached, count: Number(count), pages }))
}

// A page is a column.
function readPages({ headings, rows: [usedBy, users, tokens] }: TableEvent): ScheduledPage[] {
  return headings.slice(1).map((_, i) => ({
    requests: usedBy[i + 1] === '.' ? [] : usedBy[i + 1].split(',').map(Number),
    users: Number(users[i + 1]),
    tokens: Number(tokens[i + 1]),
  }))
}

// Each step of the program is one of the schedule, except the last, which lists all of them.
export function readSchedule(events: readonly LiveEvent[]): ScheduleStep[] {
  const steps: ScheduleStep[] = []
  for (const event of events) {
    const step = steps.at(-1)
    if (event.type === 'step') steps.push({ title: event.title, events: [], requests: [], pages: [] })
    else if (event.type === 'text') step?.events.push(event.text)
    else if (event.type === 'table' && event.headings[0] === 'request') step?.requests.push(...readRequests(event))
    else if (event.type === 'table' && event.headings[0] === 'page') step?.pages.push(...readPages(event))
  }
  return steps.slice(0, -1)
}
