/**
 * How much looking through texts may still cost: about the number of characters that are compared one by one. Once it is used up
 * nothing more is found: patterns and texts come from different people, and many of both must not hold up everybody else.
 */
export interface Effort {
  left: number;
}

/** Tells whether a text matches; made once from a pattern. Without an effort it looks as long as it takes. */
export type Matcher = (text: string, effort?: Effort) => boolean;

const unlimited: Effort = { left: Infinity };
/** A character that is only passed over, by what the engine has for that, and a place that has to be looked at. */
const [passedCost, placeCost] = [1 / 8, 32];

/** A text in lower case. */
function lowered(text: string, effort: Effort): string {
  effort.left -= text.length * passedCost;
  return text.toLowerCase();
}

const isWord = (text: string, index: number): boolean => {
  const code = text.charCodeAt(index);
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95;
};

/** Whether a match may begin or end at this index: an end of the text, or a character that is no letter, digit or `_`. */
const isBoundary = (text: string, index: number): boolean =>
  index === 0 || index === text.length || !isWord(text, index - 1) || !isWord(text, index);

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;

/** Where `segment` ends when it matches at `start`; -1 when it does not. `?` takes one code point. */
function matchAt(text: string, start: number, segment: string, effort: Effort): number {
  let at = start;
  for (let i = 0; i < segment.length; i++) {
    effort.left -= 1;
    if (at >= text.length) return -1;
    if (segment[i] === '?') {
      at += isHighSurrogate(text.charCodeAt(at)) && at + 1 < text.length ? 2 : 1;
    } else {
      if (text.charCodeAt(at) !== segment.charCodeAt(i)) return -1;
      at += 1;
    }
  }
  return at;
}

/** The first match of `segment` from `from` on that `accept` takes: [start, end], or `undefined`. */
function search(
  text: string,
  from: number,
  segment: string,
  accept: (start: number, end: number) => boolean,
  effort: Effort,
): [number, number] | undefined {
  if (!segment.includes('?')) {
    effort.left -= (text.length - from) * passedCost;
    for (let at = text.indexOf(segment, from); at !== -1 && effort.left > 0; at = text.indexOf(segment, at + 1)) {
      if (accept(at, at + segment.length)) return [at, at + segment.length];
      if (at >= text.length) return undefined;
      effort.left -= placeCost;
    }
    return undefined;
  }
  for (let at = from; at <= text.length && effort.left > 0; at++) {
    const end = matchAt(text, at, segment, effort);
    if (end !== -1 && accept(at, end)) return [at, end];
  }
  return undefined;
}

/**
 * Whether a text holds these words as they are, beginning and ending at word boundaries. Both have to be in lower case.
 * @spec client-server-api#conditions-1
 */
export function holdsWords(text: string, words: string, effort: Effort = unlimited): boolean {
  if (words === '') return false;
  effort.left -= text.length * passedCost;
  for (let at = text.indexOf(words); at !== -1 && effort.left > 0; at = text.indexOf(words, at + 1)) {
    if (isBoundary(text, at) && isBoundary(text, at + words.length)) return true;
    effort.left -= placeCost;
  }
  return false;
}

const always = (): boolean => true;

/**
 * Compiles a glob (`*` any number of characters, `?` exactly one), compared without regard to case. No backtracking:
 * each literal between two stars is taken at its first place, so time grows with the text times the longest literal.
 * @param mode `whole`: the pattern must cover the text; `words`: some part of the text that begins and ends at word
 *   boundaries, as for `content.body`
 * @spec appendices#glob-style-matching
 */
export function compileGlob(pattern: string, mode: 'whole' | 'words'): Matcher {
  const segments = pattern.toLowerCase().replace(/\*+/g, '*').split('*');
  const first = segments[0] ?? '';
  const last = segments[segments.length - 1] ?? '';
  const middle = segments.slice(1, -1);
  const words = mode === 'words';
  if (segments.length === 1) {
    if (!words) {
      // A text does not get shorter in lower case, and what stands for one character takes two units of it at most.
      const longest = 2 * first.length;
      return (original, effort = unlimited) => {
        if (original.length > longest) return false;
        const text = lowered(original, effort);
        return matchAt(text, 0, first, effort) === text.length;
      };
    }
    if (first === '') return () => false;
    return (original, effort = unlimited) => {
      if (effort.left <= 0) return false;
      const text = lowered(original, effort);
      const isApart = (start: number, end: number): boolean => isBoundary(text, start) && isBoundary(text, end);
      return search(text, 0, first, isApart, effort) !== undefined;
    };
  }
  return (original, effort = unlimited) => {
    if (effort.left <= 0) return false;
    const text = lowered(original, effort);
    let at = 0;
    if (first !== '') {
      const found = words
        ? search(text, 0, first, (start) => isBoundary(text, start), effort)?.[1]
        : matchAt(text, 0, first, effort);
      if (found === undefined || found === -1) return false;
      at = found;
    }
    for (const segment of middle) {
      const found = search(text, at, segment, always, effort);
      if (found === undefined) return false;
      at = found[1];
    }
    if (last === '') return true;
    const isEnd = (_: number, end: number): boolean => (words ? isBoundary(text, end) : end === text.length);
    return search(text, at, last, isEnd, effort) !== undefined;
  };
}
