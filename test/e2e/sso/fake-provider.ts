import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

type Claims = Record<string, unknown>;

/** What a request to the provider gets in place of its ordinary answer. */
export type Answer = (request: { readonly form: URLSearchParams; readonly url: URL }) =>
  | {
      readonly status?: number;
      readonly body?: unknown;
      readonly text?: string;
      readonly bytes?: Buffer;
      readonly type?: string;
    }
  | 'never';

const keys = generateKeyPairSync('rsa', { modulusLength: 2048 });
const foreignKeys = generateKeyPairSync('rsa', { modulusLength: 2048 });

/** Makes a signed token. */
export function makeToken(claims: Claims, { alg = 'RS256', foreign = false, kid = 'one', typ = 'JWT' } = {}): string {
  const text = [{ alg, kid, typ }, claims]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  if (alg === 'none') return `${text}.`;
  return `${text}.${sign('sha256', Buffer.from(text), (foreign ? foreignKeys : keys).privateKey).toString('base64url')}`;
}

/** An OpenID Connect provider that does as it is told, also what no provider would. Nobody has to log in there. */
export class FakeProvider {
  /** Claims of whoever signs on next. */
  person: Claims = { sub: 'nobody' };
  /** Claims of the userinfo endpoint, where they differ. */
  userinfo: Claims | undefined;
  /** Changes the ID token before it is signed. */
  idToken: (claims: Claims) => Claims = (claims) => claims;
  /** How the ID token is signed. */
  signing: Parameters<typeof makeToken>[1] = {};
  /** Answers by path, in place of the ordinary ones. */
  readonly answers = new Map<string, Answer>();
  /** What the last authorization request asked for. */
  asked = new URLSearchParams();
  /** Forms and headers that the token endpoint got. */
  readonly exchanges: { readonly form: URLSearchParams; readonly authorization: string | undefined }[] = [];
  /** How the browser goes back. */
  answersWith: 'redirect' | 'form' = 'redirect';
  readonly #codes = new Map<string, URLSearchParams>();

  private constructor(
    readonly issuer: string,
    readonly stop: () => Promise<void>,
  ) {}

  static async start(): Promise<FakeProvider> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const provider = new FakeProvider(issuer, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    server.on('request', (request, response) => void provider.#serve(request, response));
    return provider;
  }

  /** Everything as usual again. */
  reset(): void {
    this.person = { sub: 'nobody' };
    this.userinfo = undefined;
    this.idToken = (claims) => claims;
    this.signing = {};
    this.answers.clear();
    this.answersWith = 'redirect';
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const url = new URL(request.url ?? '/', this.issuer);
    const form = new URLSearchParams(Buffer.concat(chunks).toString());
    const told = this.answers.get(url.pathname)?.({ form, url });
    if (told === 'never') return;
    if (told) {
      response.writeHead(told.status ?? 200, { 'content-type': told.type ?? 'application/json' });
      response.end(told.bytes ?? told.text ?? JSON.stringify(told.body));
      return;
    }
    const json = (body: unknown, status = 200): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    switch (url.pathname) {
      case '/.well-known/openid-configuration':
        return json({
          issuer: this.issuer,
          authorization_endpoint: `${this.issuer}/authorize`,
          token_endpoint: `${this.issuer}/token`,
          userinfo_endpoint: `${this.issuer}/userinfo`,
          jwks_uri: `${this.issuer}/jwks`,
          response_types_supported: ['code'],
          id_token_signing_alg_values_supported: ['RS256'],
          code_challenge_methods_supported: ['S256'],
        });
      case '/jwks':
        return json({ keys: [{ ...keys.publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig', alg: 'RS256' }] });
      case '/userinfo':
        return json(this.userinfo ?? this.person);
      case '/authorize':
        return this.#authorize(url, response);
      case '/token': {
        this.exchanges.push({ form, authorization: request.headers.authorization });
        return this.#token(form, json);
      }
      default:
        return json({ error: 'not_found' }, 404);
    }
  }

  #authorize(url: URL, response: ServerResponse): void {
    this.asked = url.searchParams;
    const code = randomBytes(12).toString('hex');
    this.#codes.set(code, url.searchParams);
    const back = new URLSearchParams({ code });
    const state = url.searchParams.get('state');
    if (state !== null) back.set('state', state);
    const target = url.searchParams.get('redirect_uri') ?? '';
    if (this.answersWith === 'redirect') {
      response.writeHead(302, { location: `${target}?${back.toString()}` });
      response.end();
      return;
    }
    const fields = [...back].map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`).join('');
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(`<form method="post" action="${target}">${fields}</form>`);
  }

  #token(form: URLSearchParams, json: (body: unknown, status?: number) => void): void {
    const asked = this.#codes.get(form.get('code') ?? '');
    this.#codes.delete(form.get('code') ?? '');
    if (!asked) return json({ error: 'invalid_grant', error_description: 'The code is <b>not</b> known' }, 400);
    const challenge = asked.get('code_challenge');
    const verifier = form.get('code_verifier') ?? '';
    if (challenge !== null && createHash('sha256').update(verifier).digest('base64url') !== challenge)
      return json({ error: 'invalid_grant' }, 400);
    const seconds = Math.floor(Date.now() / 1000);
    const claims = this.idToken({
      iss: this.issuer,
      aud: 'rookery',
      iat: seconds,
      exp: seconds + 300,
      ...(asked.has('nonce') ? { nonce: asked.get('nonce') } : {}),
      ...this.person,
    });
    json({
      access_token: 'an access token',
      token_type: 'Bearer',
      ...(asked.get('scope')?.includes('openid') ? { id_token: makeToken(claims, this.signing) } : {}),
    });
  }
}
