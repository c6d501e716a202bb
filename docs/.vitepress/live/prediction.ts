// Compares a reader's prediction with the answer, as the exercise's test does.

// A number, written as 0.5, -1/3 or 1e-3; NaN if it is none.
export function numberOf(text: string): number {
  const [top, bottom, ...rest] = text.replaceAll('−', '-').replaceAll(' ', '').split('/')
  if (top === '' || bottom === '' || rest.length > 0) return NaN
  return bottom === undefined ? Number(top) : Number(top) / Number(bottom)
}

// Is the element right? Numbers may differ by the tolerance, relative to the answer's largest one
// if that is above 1.
export function isRight(text: string, expected: number | string, largest: number, tolerance: number): boolean {
  if (typeof expected === 'string') return text.trim() === expected
  const difference = Math.abs(numberOf(text) - expected)
  return difference <= (tolerance + 1e-6) * Math.max(1, largest)
}
