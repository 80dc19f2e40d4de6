import { eventually } from '@rookery/testing';
import type { Peer } from './peers.js';

type Json = Record<string, unknown>;

/** An event as clients get it. */
export interface WireEvent {
  readonly event_id: string;
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Json;
  readonly unsigned?: Json;
}

/** What is waited for between two servers comes within this, on a busy machine too. */
export const patienceMs = 90_000;

let names = 0;

/** Somebody with an account on one of the servers, and the requests of a client. */
export class Person {
  #since: string | undefined;
  #transactions = 0;

  private constructor(
    readonly home: Peer,
    readonly userId: string,
    readonly deviceId: string,
    readonly token: string,
  ) {}

  /** Registers a new account; its name begins with `name`. */
  static async at(home: Peer, name: string): Promise<Person> {
    names += 1;
    const body = { username: `${name}${names}`, password: 'correct horse', auth: { type: 'm.login.dummy' } };
    const answer = await request<Record<string, string>>(`${home.baseUrl}/_matrix/client/v3/register`, 'POST', body);
    if (answer.status !== 200) throw new Error(`register at ${home.kind}: ${JSON.stringify(answer.body)}`);
    const { user_id: userId, device_id: deviceId, access_token: token } = answer.body;
    return new Person(home, userId!, deviceId!, token!);
  }

  get localpart(): string {
    return this.userId.slice(1, this.userId.indexOf(':'));
  }

  /** Whatever was answered; `path` begins behind `/_matrix/client/v3` unless it begins with `/_`. */
  ask<T = Json>(method: string, path: string, body?: unknown): Promise<{ status: number; body: T }> {
    const url = `${this.home.baseUrl}${path.startsWith('/_') ? '' : '/_matrix/client/v3'}${path}`;
    return request<T>(url, method, body, this.token);
  }

  /** The answer. @throws Error for any but 2xx */
  async call<T = Json>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await this.ask<T>(method, path, body);
    if (answer.status >= 300) {
      throw new Error(`${this.userId}: ${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    }
    return answer.body;
  }

  async createRoom(body: Json): Promise<string> {
    return (await this.call<{ room_id: string }>('POST', '/createRoom', body)).room_id;
  }

  /** Joins by the other server, or by an alias, until it works: what lets them in may still be on its way. */
  async join(room: string, via?: Peer): Promise<void> {
    const path = `/join/${encodeURIComponent(room)}${via ? `?via=${via.name}&server_name=${via.name}` : ''}`;
    let last: unknown;
    await eventually(async () => {
      const { status, body } = await this.ask('POST', path, {});
      last = body;
      return status === 200;
    }, patienceMs).catch(() => {
      throw new Error(`${this.userId} cannot join ${room}: ${JSON.stringify(last)}`);
    });
  }

  send(roomId: string, body: string): Promise<string> {
    return this.sendEvent(roomId, 'm.room.message', { msgtype: 'm.text', body });
  }

  async sendEvent(roomId: string, type: string, content: Json): Promise<string> {
    this.#transactions += 1;
    const path = `/rooms/${encodeURIComponent(roomId)}/send/${type}/t${this.#transactions}`;
    return (await this.call<{ event_id: string }>('PUT', path, content)).event_id;
  }

  async setState(roomId: string, type: string, content: Json, stateKey = ''): Promise<string> {
    const path = `/rooms/${encodeURIComponent(roomId)}/state/${type}/${encodeURIComponent(stateKey)}`;
    return (await this.call<{ event_id: string }>('PUT', path, content)).event_id;
  }

  /** `invite`, `kick`, `ban`, `unban`, `leave`... */
  act(roomId: string, action: string, body: Json = {}): Promise<Json> {
    return this.call('POST', `/rooms/${encodeURIComponent(roomId)}/${action}`, body);
  }

  /** The current state of a room. */
  state(roomId: string): Promise<WireEvent[]> {
    return this.call<WireEvent[]>('GET', `/rooms/${encodeURIComponent(roomId)}/state`);
  }

  /** Everything of a room, newest first, by paging back to its beginning. */
  async history(roomId: string, limit = 100): Promise<WireEvent[]> {
    const all: WireEvent[] = [];
    let from = '';
    for (;;) {
      const page = await this.call<{ chunk: WireEvent[]; end?: string }>(
        'GET',
        `/rooms/${encodeURIComponent(roomId)}/messages?dir=b&limit=${limit}${from && `&from=${from}`}`,
      );
      all.push(...page.chunk);
      if (page.end === undefined || page.end === from) return all;
      from = page.end;
    }
  }

  /** One more sync, from where the last one ended. */
  async sync(timeoutMs = 0): Promise<Json> {
    const since = this.#since === undefined ? '' : `&since=${this.#since}`;
    const answer = await this.call<Json & { next_batch: string }>('GET', `/sync?timeout=${timeoutMs}${since}`);
    this.#since = answer.next_batch;
    return answer;
  }

  /** Syncs until something in an answer is what is looked for. */
  async hears<T>(find: (sync: Json) => T | undefined | false): Promise<T> {
    return eventually(async () => find(await this.sync(1000)), patienceMs);
  }

  /** Waits until an event can be read. */
  reads(roomId: string, eventId: string): Promise<WireEvent> {
    return eventually(async () => {
      const path = `/rooms/${encodeURIComponent(roomId)}/event/${encodeURIComponent(eventId)}`;
      const { status, body } = await this.ask<WireEvent>('GET', path);
      return status === 200 && body;
    }, patienceMs);
  }

  /** Waits until somebody's membership is what it is to be. */
  seesMember(roomId: string, userId: string, membership: string): Promise<boolean> {
    return eventually(async () => {
      const path = `/rooms/${encodeURIComponent(roomId)}/state/m.room.member/${encodeURIComponent(userId)}`;
      const { body } = await this.ask<{ membership?: string }>('GET', path);
      return body.membership === membership;
    }, patienceMs);
  }
}

/** A request with JSON. @throws Error when nobody answers */
export async function request<T>(
  url: string,
  method: string,
  body?: unknown,
  token?: string,
): Promise<{ status: number; body: T }> {
  const answer = await fetch(url, {
    method,
    headers: {
      'content-type': 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(patienceMs),
  });
  return { status: answer.status, body: (await answer.json()) as T };
}

/** A value within nested objects. */
export function dig(value: unknown, ...path: readonly string[]): unknown {
  return path.reduce<unknown>((at, key) => (at as Json | undefined)?.[key], value);
}
