import { Codes, type HttpAnswer, type Refusal } from '@rookery/module-api';

/** What the service answers. */
export interface Answer {
  readonly verdict: 'allow' | 'deny' | 'drop' | 'shadow_ban';
  readonly refusal: Refusal;
}

type Fields = Readonly<Record<string, unknown>>;

function readJson({ body }: HttpAnswer): Fields | undefined {
  try {
    const value = JSON.parse(Buffer.from(body).toString('utf8')) as unknown;
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : undefined;
  } catch {
    return undefined;
  }
}

const refusalOf = (errcode: unknown, message: unknown): Refusal => ({
  errcode: typeof errcode === 'string' && /^[\w.]{1,100}$/.test(errcode) ? errcode : Codes.FORBIDDEN,
  ...(typeof message === 'string' ? { message: message.slice(0, 500) } : {}),
});

const succeeded = ({ status }: HttpAnswer): boolean => status >= 200 && status <= 299;

/** Reads an answer in the module's own form; `undefined` for anything but an answer. */
export function readVerdict(answer: HttpAnswer): Answer | undefined {
  const { verdict, errcode, message } = (succeeded(answer) ? readJson(answer) : undefined) ?? {};
  if (verdict !== 'allow' && verdict !== 'deny' && verdict !== 'drop' && verdict !== 'shadow_ban') return undefined;
  return { verdict, refusal: refusalOf(errcode, message) };
}

/** Reads an answer by its status, as services for synapse-http-antispam give it: what is no success refuses with its own words. */
export function readStatus(answer: HttpAnswer): Answer | undefined {
  if (succeeded(answer)) return { verdict: 'allow', refusal: {} };
  const refused = readJson(answer);
  return refused && { verdict: 'deny', refusal: refusalOf(refused['errcode'], refused['error']) };
}
