// The appearance of the site, and the lines that the address names (#L42 or #L42-L47).
const key = 'vitepress-theme-appearance'
const appearance = localStorage.getItem(key) || 'auto'
const prefersDark = matchMedia('(prefers-color-scheme: dark)').matches
const isDark = appearance === 'dark' || (appearance === 'auto' && prefersDark)
document.documentElement.classList.toggle('dark', isDark)

function markLines() {
  for (const line of document.querySelectorAll('.line.marked')) line.classList.remove('marked')
  const match = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash)
  if (!match) return
  const first = Number(match[1])
  for (let i = first; i <= Number(match[2] ?? first); ++i) document.getElementById(`L${i}`)?.classList.add('marked')
  document.getElementById(`L${first}`)?.scrollIntoView()
}

function addAppearanceButton() {
  const button = document.createElement('button')
  const show = isDark => button.textContent = isDark ? 'Light' : 'Dark'
  button.addEventListener('click', () => {
    const isDark = document.documentElement.classList.toggle('dark')
    localStorage.setItem(key, isDark === prefersDark ? 'auto' : isDark ? 'dark' : 'light')
    show(isDark)
  })
  show(isDark)
  document.querySelector('header').append(button)
}

addEventListener('DOMContentLoaded', () => {
  addAppearanceButton()
  document.querySelector('.files [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' })
  markLines()
})
addEventListener('hashchange', markLines)
