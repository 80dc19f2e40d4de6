import type { TestHomeserver, TestResponse, TestUser } from '@rookery/testing';
import { registerAdmin } from './support.js';

/** Speaks the admin API of a server. */
export interface Operator {
  readonly user: TestUser;
  /** A request with the administrator's token; `path` follows `/_synapse/admin`. */
  call<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<TestResponse<T>>;
  /** The body of an answer that must be 200. */
  ok<T = Record<string, unknown>>(method: string, path: string, body?: unknown): Promise<T>;
}

/** Registers an administrator. */
export async function operatorOf(homeserver: TestHomeserver, username?: string): Promise<Operator> {
  const user = await registerAdmin(homeserver, username);
  const call: Operator['call'] = (method, path, sent) => user.request(method, `/_synapse/admin${path}`, sent);
  return {
    user,
    call,
    ok: async <T>(method: string, path: string, sent?: unknown) => {
      const answer = await call<T>(method, path, sent);
      if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
      return answer.body;
    },
  };
}

/** Each endpoint as a table has it: method, path, and a body where one is needed. */
export type EndpointRow = readonly [method: string, path: string, body?: object];

/** What endpoints answer to somebody who is no administrator, and to nobody: rows that are not refused as they must be. */
export async function notRefused(
  homeserver: TestHomeserver,
  user: TestUser,
  endpoints: readonly EndpointRow[],
): Promise<string[]> {
  const wrong: string[] = [];
  for (const [method, path, body] of endpoints) {
    const url = `/_synapse/admin${path}`;
    for (const [token, expected] of [
      [user.accessToken, '403 M_FORBIDDEN'],
      [undefined, '401 M_MISSING_TOKEN'],
    ] as const) {
      const answer = await homeserver.request<{ errcode?: string }>(method, url, body, token);
      const outcome = `${answer.status} ${answer.body.errcode ?? ''}`;
      if (outcome !== expected) wrong.push(`${method} ${path}: ${outcome} instead of ${expected}`);
    }
  }
  return wrong;
}
