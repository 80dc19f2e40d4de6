import { canonicalJson, signJson, SigningKey } from '@rookery/events';
import { authorizationHeader } from '@rookery/federation-client';
import type { JsonObject } from '@rookery/matrix-types';
import {
  type FakeNames,
  type TestAuthority,
  type TestCertificate,
  TestFederation,
  type TestHomeserver,
  type TestHomeserverOptions,
} from '@rookery/testing';
import { listening } from '@rookery/testing/internal';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { validatedFetch } from '../../support/openapi.js';

/** An answer with its JSON. */
export interface Answer {
  readonly status: number;
  readonly body: JsonObject;
}

/** A request that a played server got. */
export interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A server that a test plays: it has a certificate, a key, and answers what the test wants. */
export class PlayedServer {
  readonly asked: Asked[] = [];
  /** What it answers to everything but its keys; `undefined` for 404. */
  answer: (asked: Asked, response: ServerResponse) => void = (_, response) =>
    void response.writeHead(404).end('{"errcode":"M_UNRECOGNIZED","error":"No"}');
  /** What it says about its keys, now or later. */
  keys: () => unknown;

  constructor(
    readonly name: string,
    readonly key: SigningKey,
  ) {
    this.keys = () => this.statement();
  }

  /** What it says about its keys, changed or not, with its signature. */
  statement(change: JsonObject = {}): JsonObject {
    const own = {
      ...{ server_name: this.name, valid_until_ts: Date.now() + 3_600_000, old_verify_keys: {} },
      verify_keys: { [this.key.keyId]: { key: this.key.publicKey } },
      ...change,
    };
    return signJson(own, this.name, this.key);
  }

  /** Listens over TLS, on any port unless told; what ends that. */
  async listen({ cert, key }: TestCertificate, port = 0): Promise<{ readonly port: number; close(): Promise<void> }> {
    const server = createServer({ cert, key }, (request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        const { method = '', url = '', headers } = request;
        const asked = { method, url, headers, body };
        this.asked.push(asked);
        if (url === '/_matrix/key/v2/server')
          void Promise.resolve(this.keys()).then((keys) => response.end(JSON.stringify(keys)));
        else this.answer(asked, response);
      });
    });
    await listening(server, port);
    const close = (): Promise<void> => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    };
    return { port: (server.address() as AddressInfo).port, close };
  }

  /** Headers of a request that it signs. */
  authorization(method: string, uri: string, destination: string, content?: JsonObject): string {
    const canonicalContent = content === undefined ? undefined : canonicalJson(content);
    return authorizationHeader({ method, uri, origin: this.name, destination, canonicalContent }, this.key);
  }

  /** Sends a signed request to a server under test. */
  async request(to: TestHomeserver, method: string, uri: string, content?: JsonObject): Promise<Answer> {
    const serverName = to.server.config.serverName;
    return send(to, method, uri, this.authorization(method, uri, serverName, content), content);
  }
}

/** Sends a request with whatever `Authorization`. */
export async function send(
  to: TestHomeserver,
  method: string,
  uri: string,
  authorization: string | undefined,
  content?: JsonObject | string,
): Promise<Answer> {
  // What is no JSON cannot be held against a schema.
  const response = await (typeof content === 'string' ? fetch : validatedFetch)(`${to.baseUrl}${uri}`, {
    method,
    headers: authorization === undefined ? {} : { authorization },
    ...(content === undefined ? {} : { body: typeof content === 'string' ? content : JSON.stringify(content) }),
  });
  return { status: response.status, body: (await response.json()) as JsonObject };
}

/** Sends a request without a body with whatever `Authorization` headers, a line each as they are. */
export async function sendLines(to: TestHomeserver, uri: string, authorizations: readonly string[]): Promise<Answer> {
  const url = new URL(`${to.baseUrl}${uri}`);
  const headers = ['host', url.host, ...authorizations.flatMap((line) => ['authorization', line])];
  const sending = httpRequest(url, { headers });
  const [response] = (await once(sending.end(), 'response')) as [IncomingMessage];
  const { statusCode = 0 } = response;
  return { status: statusCode, body: JSON.parse(await text(response)) as JsonObject };
}

/** Servers that find and trust each other, and nobody else; what they say is held against the specification's data. */
export class FederationWorld {
  #keys = 100;

  private constructor(private readonly federation: TestFederation) {}

  static async create(): Promise<FederationWorld> {
    return new FederationWorld(await TestFederation.create());
  }

  get names(): FakeNames {
    return this.federation.names;
  }

  /** Issues the certificates of this world. */
  get authority(): TestAuthority {
    return this.federation.authority;
  }

  /** Settings by which a server belongs to this world. */
  get settings(): Readonly<Record<string, unknown>> {
    return this.federation.settings;
  }

  /** Starts a homeserver with this name: plain HTTP for its clients, TLS for other servers. */
  homeserver(name: string, options: TestHomeserverOptions = {}): Promise<TestHomeserver> {
    return this.federation.homeserver(name, { fetch: validatedFetch, ...options });
  }

  /** Starts a server that the test plays. */
  async played(name: string): Promise<PlayedServer> {
    const played = new PlayedServer(name, SigningKey.fromSeed('played', new Uint8Array(32).fill(this.#keys++)));
    const { port, close } = await played.listen(this.federation.authority.issue([name]));
    this.names.host(`${name}:8448`, { address: '127.0.0.1', port });
    this.federation.whenStopped(close);
    return played;
  }

  stop(): Promise<void> {
    return this.federation.stop();
  }
}
