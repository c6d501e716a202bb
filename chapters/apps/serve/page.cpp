#include "chapters/apps/serve/page.hpp"

namespace llm::serve {

const char* const chat_page = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Chat</title>
<style>
  :root {
    color-scheme: light dark;
    --background: light-dark(#fff, #1b1b1f);
    --divider: light-dark(#e2e2e3, #2e2e32);
    --text: light-dark(#2b313b, #dfdfd6);
    --quiet: light-dark(#5c6470, #a0a7b2);
    --link: light-dark(#2c4f9e, #a8b8ff);
  }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--background); color: var(--text);
         font: 15px/1.6 Inter, ui-sans-serif, system-ui, sans-serif; }
  main { max-width: 44rem; margin: 0 auto; padding: 14px 24px; }
  h1 { font-size: 1.3rem; border-bottom: 1px solid var(--divider); padding-bottom: 10px; }
  #log { min-height: 8rem; }
  #log p { white-space: pre-wrap; overflow-wrap: anywhere; margin: 10px 0; }
  #log b, label { color: var(--quiet); font-weight: 400; font-size: 13px; }
  #log b { display: block; }
  form { display: grid; gap: 8px; border-top: 1px solid var(--divider); padding-top: 14px; }
  #row { display: flex; flex-wrap: wrap; gap: 12px; align-items: center; }
  textarea, input, button { font: inherit; color: inherit; background: var(--background);
                            border: 1px solid var(--divider); border-radius: 4px; padding: 4px 10px; }
  textarea { resize: vertical; }
  input { width: 6rem; }
  :focus-visible { outline: 2px solid var(--link); outline-offset: 1px; }
  :disabled { opacity: .5; }
  #note { min-height: 1.6em; }
</style>
<main>
<h1>Chat with <span id="model">the model</span></h1>
<div id="log" role="log" aria-live="polite" aria-label="Conversation"></div>
<p id="note" role="status"></p>
<form id="form">
  <label for="text">Message</label>
  <textarea id="text" rows="2" required autofocus></textarea>
  <div id="row">
    <button id="send">Send</button>
    <button id="stop" type="button" disabled>Stop</button>
    <button id="clear" type="button">New conversation</button>
    <label>temperature <input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
    <label>API key <input id="key" type="password" autocomplete="off"></label>
  </div>
</form>
</main>
<script>
'use strict'
const $ = id => document.getElementById(id)
let messages = [], running = null

function headers() {
  const key = $('key').value
  return { 'Content-Type': 'application/json', ...(key && { Authorization: 'Bearer ' + key }) }
}

function show(role, text) {
  const line = document.createElement('p'), name = document.createElement('b')
  const content = document.createElement('span')
  name.textContent = role === 'user' ? 'You' : 'Model'
  content.textContent = text
  line.append(name, content)
  $('log').append(line)
  return content
}

async function error(response) {
  const body = await response.json().catch(() => null)
  return new Error(body?.error?.message ?? 'HTTP ' + response.status)
}

async function model() {
  const response = await fetch('/v1/models', { headers: headers() })
  if (!response.ok) throw await error(response)
  return (await response.json()).data[0].id
}
const name = () => model().then(id => $('model').textContent = id)
name().catch(() => $('note').textContent = 'Enter the API key, then send a message.')

// Calls a function with the data of each server-sent event.
async function events(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    const parts = (text + value).split('\n\n')
    text = parts.pop()
    for (const part of parts) if (part !== 'data: [DONE]') each(JSON.parse(part.slice(6)))
  }
}

async function answer() {
  running = new AbortController()
  const body = { model: await name(), messages, stream: true, temperature: Number($('temperature').value) }
  const response = await fetch('/v1/chat/completions',
    { method: 'POST', headers: headers(), body: JSON.stringify(body), signal: running.signal })
  if (!response.ok) throw await error(response)
  const line = show('assistant', '')
  const message = { role: 'assistant', content: '' }
  messages.push(message)
  await events(response, event => {
    if (event.error) throw new Error(event.error.message)
    const choice = event.choices[0]
    message.content += choice?.delta.content ?? ''
    line.textContent = message.content
    if (choice?.finish_reason === 'length') $('note').textContent = 'A limit ended the answer.'
    line.scrollIntoView({ block: 'nearest' })
  })
}

$('form').onsubmit = async event => {
  event.preventDefault()
  const text = $('text').value.trim()
  if (!text || running) return
  $('note').textContent = ''
  messages.push({ role: 'user', content: text })
  const line = show('user', text)
  $('send').disabled = true
  $('stop').disabled = false
  $('text').value = ''
  try {
    await answer()
  } catch (problem) {
    if (problem.name !== 'AbortError') $('note').textContent = problem.message
    if (messages.at(-1).role === 'user') {
      messages.pop()  // it got no answer: to be sent again
      line.parentNode.remove()
      $('text').value = text
    }
  }
  running = null
  $('send').disabled = false
  $('stop').disabled = true
  $('text').focus()
}
$('stop').onclick = () => running?.abort()
$('clear').onclick = () => {
  running?.abort()
  messages = []
  $('log').replaceChildren()
  $('note').textContent = ''
}
$('text').onkeydown = event => {
  if (event.key !== 'Enter' || event.shiftKey) return
  event.preventDefault()
  $('form').requestSubmit()
}
</script>
</html>
)html";

}  // namespace llm::serve
