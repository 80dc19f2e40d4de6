import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { listening } from '@rookery/testing/internal';
import { stringify } from 'yaml';

/** Both databases that a server can have. */
export const databases = ['sqlite', 'postgres'] as const;

/** An event as an application service gets it. */
export interface PushedEvent {
  readonly type: string;
  readonly room_id?: string;
  readonly event_id?: string;
  readonly sender?: string;
  readonly state_key?: string;
  readonly content: Readonly<Record<string, unknown>>;
  readonly unsigned?: Readonly<Record<string, unknown>>;
  readonly [key: string]: unknown;
}

/** A transaction that a service has got. */
export interface PushedTransaction {
  readonly txnId: string;
  readonly path: string;
  readonly body: { readonly events: readonly PushedEvent[] } & Readonly<Record<string, unknown>>;
  /** Whether the service said that it took it. */
  readonly taken: boolean;
}

/** A request that a service got. */
export interface ServiceRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

/** What a service answers; `undefined` for the usual. A text is sent as it is. */
export type ServiceAnswer = { readonly status: number; readonly body?: unknown } | undefined;

/** An application service that listens on the loopback address and notes everything. */
export class FakeService {
  readonly requests: ServiceRequest[] = [];
  readonly transactions: PushedTransaction[] = [];
  /** Decides about requests before the usual answers. May take its time. */
  onRequest: (request: ServiceRequest) => ServiceAnswer | Promise<ServiceAnswer> = () => undefined;
  /** Users and aliases that it says to have. */
  readonly known = new Set<string>();
  #server = createServer();

  private constructor(readonly port: number) {}

  static async start(): Promise<FakeService> {
    const service = new FakeService(await freePort());
    await service.listen();
    return service;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Comes up, after {@link down} too. */
  async listen(): Promise<void> {
    this.#server = createServer((incoming, response) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('end', () => {
        const url = new URL(incoming.url ?? '/', this.url);
        const text = Buffer.concat(chunks).toString();
        const request: ServiceRequest = {
          method: incoming.method ?? '',
          path: decodeURIComponent(url.pathname),
          query: url.searchParams,
          authorization: incoming.headers.authorization,
          body: text === '' ? undefined : JSON.parse(text),
        };
        void this.#answer(request).then(({ status, body }) => {
          response.writeHead(status, { 'content-type': 'application/json' });
          response.end(typeof body === 'string' ? body : JSON.stringify(body ?? {}));
        });
      });
    });
    await listening(this.#server, this.port);
  }

  /** Goes down: nothing listens any more. */
  async down(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Everything that it took, in order; a transaction that came twice counts once. */
  get events(): PushedEvent[] {
    const seen = new Set<string>();
    return this.transactions.flatMap(({ txnId, taken, body }) => {
      if (!taken || seen.has(txnId)) return [];
      seen.add(txnId);
      return body.events;
    });
  }

  /** The ephemeral part of what it took, under a key. */
  part<T = PushedEvent>(key: string): T[] {
    return this.transactions.flatMap(({ taken, body }) => (taken ? ((body[key] ?? []) as T[]) : []));
  }

  /** The texts of the messages that it took. */
  get texts(): string[] {
    return this.events.flatMap(({ type, content }) => (type === 'm.room.message' ? [String(content['body'])] : []));
  }

  async #answer(request: ServiceRequest): Promise<{ status: number; body?: unknown }> {
    this.requests.push(request);
    const own = await this.onRequest(request);
    const [, txnId] = /\/transactions\/(.+)$/.exec(request.path) ?? [];
    const answer = own ?? this.#usual(request);
    if (txnId !== undefined && request.method === 'PUT') {
      const taken = answer.status >= 200 && answer.status < 300;
      this.transactions.push({ txnId, path: request.path, body: request.body as PushedTransaction['body'], taken });
    }
    return answer;
  }

  #usual({ method, path }: ServiceRequest): { status: number; body?: unknown } {
    if (method === 'PUT' && /^(?:\/base)?\/_matrix\/app\/v1\/transactions\/[^/]+$/.test(path)) return { status: 200 };
    if (method === 'POST' && path === '/_matrix/app/v1/ping') return { status: 200 };
    const [, name] = /^\/_matrix\/app\/v1\/(?:users|rooms)\/(.+)$/.exec(path) ?? [];
    if (name !== undefined)
      return this.known.has(name) ? { status: 200 } : { status: 404, body: { errcode: 'M_NOT_FOUND', error: 'No' } };
    return { status: 404, body: { errcode: 'M_UNRECOGNIZED', error: path } };
  }
}

/** A folder with registration files. */
export class RegistrationFiles {
  readonly folder = mkdtempSync(join(tmpdir(), 'rookery-appservices-'));

  /** Writes one; its path. */
  write(id: string, fields: object): string {
    const path = join(this.folder, `${id}.yaml`);
    const usual = {
      id,
      url: null,
      as_token: `as-${id}`,
      hs_token: `hs-${id}`,
      sender_localpart: `${id}bot`,
      rate_limited: false,
      namespaces: { users: [{ regex: `@${id}_.*`, exclusive: true }], aliases: [], rooms: [] },
    };
    writeFileSync(path, stringify({ ...usual, ...fields }));
    return path;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A service of {@link RegistrationFiles} as one of its users, or as itself. */
export function acting(homeserver: Pick<TestHomeserver, 'request'>, id: string, userId?: string): TestUser {
  const accessToken = `as-${id}`;
  return {
    userId: userId ?? `@${id}bot:rookery.test`,
    accessToken,
    deviceId: '',
    request(method, path, body) {
      const query = userId === undefined ? '' : `user_id=${encodeURIComponent(userId)}`;
      const separator = query === '' ? '' : path.includes('?') ? '&' : '?';
      return homeserver.request(method, `${path}${separator}${query}`, body, accessToken);
    },
  };
}

/** Registers a user of a service, without a session. */
export async function registerGhost(
  homeserver: Pick<TestHomeserver, 'request'>,
  id: string,
  username: string,
): Promise<TestUser> {
  const body = { type: 'm.login.application_service', username, inhibit_login: true };
  const answer = await homeserver.request('POST', '/register', body, `as-${id}`);
  if (answer.status !== 200) throw new Error(`${username}: ${JSON.stringify(answer.body)}`);
  return acting(homeserver, id, String(answer.body['user_id']));
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** What must be the same each time that a transaction comes. */
const lasting = ({ body }: PushedTransaction): string =>
  JSON.stringify([
    body.events.map(({ event_id: eventId, content }) => [eventId, content]),
    body['de.sorunome.msc2409.to_device'] ?? [],
  ]);

/** The ids under which a service did not get the same each time. */
export function altered({ transactions }: FakeService): string[] {
  const contents = Map.groupBy(transactions, ({ txnId }) => txnId);
  return [...contents].flatMap(([txnId, all]) => (new Set(all.map(lasting)).size > 1 ? [txnId] : []));
}
