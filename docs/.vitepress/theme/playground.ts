// Runs of a program for a playground, which decides itself what it displays.
import { onUnmounted, ref, shallowRef } from 'vue'
import { joinGenerated, type LiveEvent, type TableEvent, type TensorEvent } from '../live/events'
import type { Run, RunFiles } from '../live/program'
import { programs } from './sessions'

export function useProgram(slug: string) {
  const events = shallowRef<LiveEvent[]>([]) // of the latest run that ended well
  const message = ref('') // why the latest run failed
  const isRunning = ref(false)
  let run: Run | null = null
  let next: { args: string[], runFiles?: RunFiles } | null = null

  // Only one run is in progress; of those that are asked for meanwhile, the last one follows it.
  async function start(args: string[], runFiles?: RunFiles) {
    next = { args, runFiles }
    if (run) return
    isRunning.value = true
    while (next) {
      const received: LiveEvent[] = []
      run = programs()({ slug, args: next.args }, event => received.push(event), next.runFiles)
      next = null
      try {
        const { code, error } = await run.result
        message.value = code === 0 ? '' : error
        if (code === 0) events.value = joinGenerated(received)
      } catch (error) {
        message.value = `The program could not be run: ${(error as Error).message}`
      }
    }
    run = null
    isRunning.value = false
  }
  onUnmounted(() => run?.stop())

  const tensor = (name: string) =>
    events.value.find((event): event is TensorEvent => event.type === 'tensor' && event.name === name)
  // The table whose headings begin with these.
  const table = (...headings: string[]) =>
    events.value.find((event): event is TableEvent =>
      event.type === 'table' && headings.every((heading, i) => event.headings[i] === heading))

  return { events, message, isRunning, start, tensor, table }
}
