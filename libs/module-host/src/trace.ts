import { LogContext } from '@rookery/platform';

/** A call that is over. */
export interface CallToTrace {
  readonly handler: { readonly module: string; readonly callback: string };
  readonly startedAtMs: number;
  readonly ending: 'answer' | 'thrown' | 'failed';
  readonly answer: unknown;
}

/** One call of a module, for its author's eyes. */
export interface TracedCall {
  readonly module: string;
  readonly callback: string;
  /** What it was about: type and room of an event, or what else was given in words. */
  readonly about: string;
  /** Who asked: a user, an address, a server. */
  readonly askedFor: string;
  readonly outcome: 'ok' | 'refused' | 'failed';
  /** The refusal, or the answer where it says something. */
  readonly detail: string;
  readonly requestId: string | undefined;
  readonly durationMs: number;
}

const maxLength = 200;

/** @param result what came of the question by this call; `undefined` where the next module is asked */
export function tracedCall(
  { handler, ending, answer }: CallToTrace,
  given: readonly unknown[],
  result: unknown,
  askedFor: string,
  durationMs: number,
): TracedCall {
  const { module, callback } = handler;
  const refusal = refusalIn(result);
  const outcome = ending === 'failed' || refusal?.failed === true ? 'failed' : refusal ? 'refused' : 'ok';
  const detail = refusal ? `${refusal.errcode}: ${refusal.message}` : ending === 'answer' ? wordsOf(answer) : '';
  const { requestId } = LogContext.current() ?? {};
  return { module, callback, about: aboutOf(given), askedFor, outcome, detail, requestId, durationMs };
}

interface Refusal {
  readonly errcode: string;
  readonly message: string;
  readonly failed: boolean;
}

function refusalIn(result: unknown): Refusal | undefined {
  const isRefusal =
    typeof result === 'object' && result !== null && (result as { allowed?: unknown }).allowed === false;
  return isRefusal ? (result as Refusal) : undefined;
}

/** At most two texts: what comes behind them may be a secret. */
function aboutOf([first, second]: readonly unknown[]): string {
  const { type, roomId } = (first ?? {}) as { readonly type?: unknown; readonly roomId?: unknown };
  if (typeof type === 'string' && typeof roomId === 'string') return `${type} in ${roomId}`;
  return [first, second]
    .filter((one) => typeof one === 'string')
    .join(', ')
    .slice(0, maxLength);
}

/** What an answer says, where it says more than yes. */
function wordsOf(answer: unknown): string {
  try {
    if (answer == null || answer === true || answer === 'NOT_SPAM') return '';
    return (JSON.stringify(answer) ?? '').slice(0, maxLength);
  } catch {
    return '';
  }
}
