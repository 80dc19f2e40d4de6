/**
 * Whether a glob of `*` (any text) and `?` (one character) matches the whole of a text, without regard to case. Goes back to the
 * last `*` only, which is enough: an earlier one could not match more. So it takes at most glob times text, never longer.
 * @spec appendices#glob-style-matching
 */
export function matchesGlob(glob: string, text: string): boolean {
  const pattern = glob.toLowerCase();
  const subject = text.toLowerCase();
  let p = 0;
  let s = 0;
  let star = -1;
  let mark = 0;
  while (s < subject.length) {
    if (pattern[p] === '*') {
      star = p++;
      mark = s;
    } else if (p < pattern.length && (pattern[p] === '?' || pattern[p] === subject[s])) {
      p++;
      s++;
    } else if (star >= 0) {
      p = star + 1;
      s = ++mark;
    } else return false;
  }
  while (pattern[p] === '*') p++;
  return p === pattern.length;
}
