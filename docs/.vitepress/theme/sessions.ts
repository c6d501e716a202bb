// Sessions of the page that is displayed, for its components.
import { onMounted, onUnmounted, shallowRef, type Ref, type ShallowRef } from 'vue'
import { withBase } from 'vitepress'
import { commandText, type Command } from '../live/command'
import type { OptionEvent } from '../live/events'
import { programsIn, type RunProgram } from '../live/program'
import { Session, type SessionState } from '../live/session'

let runProgram: RunProgram | undefined

export function programs(): RunProgram {
  runProgram ??= programsIn(
    new URL(withBase('/programs/'), location.href).href,
    () => new Worker(new URL('../live/worker.ts', import.meta.url), { type: 'module' }),
  )
  return runProgram
}

const sessions = new Map<string, Session>()

export interface SessionHandle {
  session: ShallowRef<Session | null> // null until the component is mounted
  state: ShallowRef<Readonly<SessionState> | null>
}

// The session of a command on this page. It ends with the last component that uses it.
export function useSession(command: Command): SessionHandle {
  const session = shallowRef<Session | null>(null)
  const state = shallowRef<Readonly<SessionState> | null>(null)
  let key = ''
  let unsubscribe = () => {}

  onMounted(() => {
    key = `${location.pathname} ${commandText(command)}`
    const found = sessions.get(key) ?? new Session(command, programs())
    sessions.set(key, found)
    session.value = found
    state.value = found.state
    unsubscribe = found.subscribe(next => (state.value = next))
  })
  onUnmounted(() => {
    unsubscribe()
    const found = session.value
    if (!found || found.isWatched) return
    found.stop()
    sessions.delete(key)
  })
  return { session, state }
}

const optionLists = new Map<string, Promise<OptionEvent[]>>()

// The options of a program, from its --help.
export function optionsOf(slug: string): Promise<OptionEvent[]> {
  let list = optionLists.get(slug)
  if (!list) {
    const options: OptionEvent[] = []
    const run = programs()({ slug, args: ['--help'] }, (event) => {
      if (event.type === 'option') options.push(event)
    })
    list = run.result.then(() => options)
    list.catch(() => optionLists.delete(slug))
    optionLists.set(slug, list)
  }
  return list
}

// Calls `act` once, when the element is at most a screen away from what is visible.
export function whenNear(element: Ref<HTMLElement | null>, act: () => void) {
  let observer: IntersectionObserver | undefined
  onMounted(() => {
    if (!element.value) return
    observer = new IntersectionObserver((entries) => {
      if (!entries.some(entry => entry.isIntersecting)) return
      observer?.disconnect()
      act()
    }, { rootMargin: '100% 0px' })
    observer.observe(element.value)
  })
  onUnmounted(() => observer?.disconnect())
}
