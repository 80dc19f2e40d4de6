import { getRequestFn, LogService, MatrixAuth, MatrixClient, setRequestFn } from 'matrix-bot-sdk';
import { openApiValidator } from './openapi.js';

/** The parts of an exchange that the library's own HTTP client shows. */
interface BotRequest {
  readonly uri: string;
  readonly method: string;
  readonly body?: unknown;
}
interface BotResponse {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
}
type Answer = (error: unknown, response: BotResponse | undefined, body: unknown) => void;
type Send = (request: BotRequest, answer: Answer) => unknown;

const send = getRequestFn() as unknown as Send;

/** What was not as specified; the library hides the errors of its sync loop, so that a test has to look here. */
export const contradictions: string[] = [];

setRequestFn(((request, answer) =>
  send(request, (error, response, body) => {
    const problems = response === undefined ? [] : problemsOf(request, response, body);
    contradictions.push(...problems);
    answer(problems.length > 0 ? new Error(problems.join('\n')) : error, response, body);
  })) satisfies Send);
const ignore = (): void => {};
LogService.setLogger({ trace: ignore, debug: ignore, info: ignore, warn: ignore, error: ignore });

function problemsOf(request: BotRequest, response: BotResponse, body: unknown): string[] {
  const validator = openApiValidator();
  const { pathname } = new URL(request.uri);
  if (validator.endpoints === 0 || !pathname.startsWith('/_matrix/client/')) return [];
  if (!(response.headers['content-type'] ?? '').startsWith('application/json')) return [];
  return validator.check({
    method: request.method,
    path: pathname,
    requestBody: typeof request.body === 'string' ? (JSON.parse(request.body) as unknown) : undefined,
    status: response.statusCode,
    responseBody: typeof body === 'string' ? (JSON.parse(body) as unknown) : body,
  });
}

/** Registers an account through interactive auth. */
export const registerBot = (baseUrl: string, username: string): Promise<MatrixClient> =>
  new MatrixAuth(baseUrl).passwordRegister(username, `password of ${username}`, `${username}'s bot`);

/** Logs in to an account that {@link registerBot} made. */
export const loginBot = (baseUrl: string, username: string): Promise<MatrixClient> =>
  new MatrixAuth(baseUrl).passwordLogin(username, `password of ${username}`);

/** The next event of this name for which `wanted` holds. */
export function nextOf<T = Record<string, unknown>>(
  client: MatrixClient,
  name: string,
  wanted: (roomId: string, event: T) => boolean = () => true,
  limitMs = 90_000,
): Promise<T> {
  const happened = new Promise<T>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${name} within ${limitMs} ms`)), limitMs);
    const listener = (roomId: string, event: T): void => {
      if (!wanted(roomId, event)) return;
      clearTimeout(timer);
      client.removeListener(name, listener);
      resolve(event);
    };
    client.on(name, listener);
  });
  // A test that failed for another reason must not end the whole run.
  happened.catch(() => {});
  return happened;
}
