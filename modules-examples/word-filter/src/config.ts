import { ConfigError } from '@rookery/module-api';

/** What the operator configured, ready for use. */
export interface WordFilterConfig {
  /** Matches any of the words; `undefined` when there are none. */
  readonly pattern: RegExp | undefined;
  /** What the sender reads. */
  readonly message: string;
}

const maxWords = 10_000;
const maxWordLength = 100;

/** Checks the module's `config`: `words`, a list of texts, and `message`, what the sender reads. @throws ConfigError */
export function parseConfig(raw: unknown): WordFilterConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with words');
  const {
    words,
    message = 'This message holds a word that is not welcome here',
    ...others
  } = raw as Record<string, unknown>;
  for (const name of Object.keys(others)) throw new ConfigError('is unknown; there are words and message', [name]);
  if (!Array.isArray(words) || words.length > maxWords) {
    throw new ConfigError(`expected a list of at most ${maxWords} words`, ['words']);
  }
  for (const [i, word] of words.entries()) {
    if (typeof word !== 'string' || word.trim() === '' || word.length > maxWordLength) {
      throw new ConfigError(`expected a text of 1 to ${maxWordLength} characters`, ['words', i]);
    }
  }
  if (typeof message !== 'string') throw new ConfigError('expected a text', ['message']);
  return { pattern: wordPattern(words as string[]), message };
}

/** Whole words, in any case. Words are taken as they are: nothing in them is a pattern. */
function wordPattern(words: readonly string[]): RegExp | undefined {
  if (words.length === 0) return undefined;
  const escaped = words.map((word) => word.trim().replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
  return new RegExp(`(?<![\\p{L}\\p{N}_])(?:${escaped.join('|')})(?![\\p{L}\\p{N}_])`, 'iu');
}
