// The runs of one command of a page. All cells and figures with this command share a session; the
// first run has the options of the page, and later runs those that the reader has changed.
import { changedArgs, type Changes, type Command } from './command'
import { joinGenerated, type LiveEvent } from './events'
import type { Run, RunProgram } from './program'

export interface SessionState {
  status: 'idle' | 'running' | 'done' | 'failed' | 'stopped'
  events: LiveEvent[] // of the run that is displayed
  pageEvents: LiveEvent[] // of the run with the page's own options
  changes: Changes
  args: string[] // of the latest run or the next one
  shownArgs: string[] // of the run that is displayed
  progress: string // the latest progress line
  message: string // why the latest run failed
}

type Listener = (state: Readonly<SessionState>) => void

// Programs that run for less than these milliseconds follow each change of an option. The first
// runs are slower, because the program is not compiled to fast code yet.
const liveLimit = 200
const firstLiveLimit = 1000
const firstRuns = 3

const replacedAfter = 1000 // milliseconds of a run that a change then ends
const notifyInterval = 50 // milliseconds
const firstEventsAfter = 300 // milliseconds until a run displaces the events of the one before it

export class Session {
  readonly command: Command
  private current: SessionState
  private readonly listeners = new Set<Listener>()
  private run: Run | null = null
  private durations: number[] = [] // of the runs that ended well
  private repeat = false // an option changed during the run
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(command: Command, private readonly runProgram: RunProgram) {
    this.command = command
    this.current = {
      status: 'idle', events: [], pageEvents: [], changes: {}, args: command.args,
      shownArgs: command.args, progress: '', message: '',
    }
  }

  get state(): Readonly<SessionState> {
    return this.current
  }

  // Whether runs are short enough to follow a moving slider: the shortest of the latest three,
  // because other programs may slow down any of them.
  get isLive(): boolean {
    const limit = this.durations.length > firstRuns ? liveLimit : firstLiveLimit
    return Math.min(...this.durations.slice(-3)) < limit
  }

  get isWatched(): boolean {
    return this.listeners.size > 0
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  // The run of the page's own command, if there was none yet.
  startOnce() {
    if (this.current.status === 'idle') this.start()
  }

  // Only one run is in progress. If there is one already, one more follows it, or replaces it if it
  // takes long.
  start() {
    const elapsed = performance.now() - this.began
    if (this.run && elapsed < replacedAfter) {
      this.repeat = true
      return
    }
    if (this.run) {
      this.run.stop()
      this.durations.push(elapsed)
    }
    this.repeat = false
    this.update({ status: 'running', progress: '', message: '' })
    const run = this.runProgram({ slug: this.command.slug, args: this.current.args }, this.receiver())
    this.run = run
    run.result.then(
      ({ code, error, milliseconds }) => {
        if (this.run !== run) return
        this.run = null
        this.finish(code, error, milliseconds)
      },
      (error) => {
        if (this.run !== run) return
        this.run = null
        this.update({ status: 'failed', message: `The program could not be run: ${error.message}` })
      },
    )
  }

  stop() {
    if (!this.run) return
    this.run.stop()
    this.run = null
    this.repeat = false
    this.showReceived()
    this.update({ status: 'stopped', progress: '' })
  }

  // Sets an option of the program: text, true for a flag, false to leave it out.
  set(name: string, value: string | boolean) {
    this.change({ ...this.current.changes, [name]: value })
  }

  reset(name: string) {
    const { [name]: _, ...changes } = this.current.changes
    this.change(changes)
  }

  private change(changes: Changes) {
    this.update({ changes, args: changedArgs(this.command.args, changes) })
    if (this.isLive) this.start()
  }

  private received: LiveEvent[] = []
  private receivedArgs: string[] = []
  private isPageRun = false
  private began = 0

  private receiver(): (event: LiveEvent) => void {
    const received: LiveEvent[] = []
    this.received = received
    this.receivedArgs = this.current.args
    this.isPageRun = Object.keys(this.current.changes).length === 0
    this.began = performance.now()
    return (event) => {
      if (received !== this.received) return
      if (event.type === 'progress') this.current.progress = event.text
      else received.push(event)
      this.timer ??= setTimeout(() => {
        this.timer = undefined
        if (performance.now() - this.began > firstEventsAfter) this.showReceived()
        this.notify()
      }, notifyInterval)
    }
  }

  private showReceived() {
    if (this.received.length === 0) return
    const events = joinGenerated(this.received)
    this.current.events = events
    this.current.shownArgs = this.receivedArgs
    if (this.isPageRun) this.current.pageEvents = events
  }

  private finish(code: number, error: string, milliseconds: number) {
    if (code === 0) {
      this.showReceived()
      this.durations.push(milliseconds)
    }
    this.update({
      status: code === 0 ? 'done' : 'failed',
      progress: '',
      message: code === 0 ? '' : error || `The program ended with status ${code}.`,
    })
    if (this.repeat) this.start()
  }

  private update(part: Partial<SessionState>) {
    Object.assign(this.current, part)
    this.notify()
  }

  private notify() {
    clearTimeout(this.timer)
    this.timer = undefined
    const state = { ...this.current }
    for (const listener of this.listeners) listener(state)
  }
}
