import { ConfigError } from '@rookery/module-api';
import { type Subject, subjects } from './questions.js';

type Word = 'allow' | 'deny';

export interface HttpAntispamConfig {
  readonly url: string;
  /** Sent as a bearer token. */
  readonly token: string | undefined;
  /** `callbacks`: each question has an address of its own below `url`, and the status is the answer. */
  readonly form: 'verdicts' | 'callbacks';
  readonly ask: ReadonlySet<Subject>;
  /** What the service is told without waiting for its answer. */
  readonly background: ReadonlySet<Subject>;
  /** What becomes of a request when the service does not answer. */
  readonly onFailure: (subject: Subject) => Word;
  readonly timeoutMs: number;
}

const names = ['url', 'token', 'form', 'ask', 'background', 'on_failure', 'timeout_ms'];
const all = Object.keys(subjects) as Subject[];

/** Checks the module's `config`: `url`, `token`, `form`, `ask`, `background`, `on_failure`, `timeout_ms`. @throws ConfigError */
export function parseConfig(raw: unknown): HttpAntispamConfig {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new ConfigError('expected an object with url');
  const given = raw as Record<string, unknown>;
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [name]);
  }
  const { url, token, form = 'verdicts', timeout_ms: timeoutMs = 3000 } = given;
  if (typeof url !== 'string' || !/^https?:$/.test(URL.parse(url)?.protocol ?? '')) {
    throw new ConfigError('expected an http or https URL', ['url']);
  }
  if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token))) {
    throw new ConfigError('expected a text without spaces', ['token']);
  }
  if (form !== 'verdicts' && form !== 'callbacks') throw new ConfigError('expected verdicts or callbacks', ['form']);
  const ask = listOf(given, 'ask', form === 'callbacks' ? all.filter((one) => subjects[one]) : all, ['event']);
  if (typeof timeoutMs !== 'number' || !(timeoutMs >= 100 && timeoutMs <= 4000)) {
    throw new ConfigError('expected a number of milliseconds from 100 to 4000', ['timeout_ms']);
  }
  return {
    ...{ url, token, form, ask, timeoutMs },
    background: listOf(given, 'background', [...ask], []),
    onFailure: failureOf(given['on_failure']),
  };
}

/** Some of what is possible. */
function listOf(
  given: Readonly<Record<string, unknown>>,
  name: string,
  possible: readonly Subject[],
  usual: readonly Subject[],
): ReadonlySet<Subject> {
  const list = given[name] ?? usual;
  if (!Array.isArray(list)) throw new ConfigError(`expected a list of ${possible.join(', ')}`, [name]);
  for (const [i, one] of list.entries()) {
    if (!possible.includes(one as Subject)) throw new ConfigError(`expected one of ${possible.join(', ')}`, [name, i]);
  }
  return new Set(list as Subject[]);
}

const isWord = (value: unknown): value is Word => value === 'allow' || value === 'deny';

/** One word for everything, or a word for each subject, `others` among them. */
function failureOf(given: unknown): (subject: Subject) => Word {
  // No default: whether spam or silence is worse is the operator's to say.
  if (typeof given !== 'object' || given === null) {
    if (!isWord(given)) throw new ConfigError('expected allow or deny', ['on_failure']);
    return () => given;
  }
  const words = given as Readonly<Record<string, unknown>>;
  for (const [name, word] of Object.entries(words)) {
    if (name !== 'others' && !all.includes(name as Subject))
      throw new ConfigError(`is unknown; there are ${all.join(', ')} and others`, ['on_failure', name]);
    if (!isWord(word)) throw new ConfigError('expected allow or deny', ['on_failure', name]);
  }
  const { others } = words;
  if (!isWord(others)) throw new ConfigError('expected allow or deny', ['on_failure', 'others']);
  return (subject) => (Object.hasOwn(words, subject) ? (words[subject] as Word) : others);
}
