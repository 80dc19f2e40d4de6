import { Readable } from 'node:stream';
import type { Type } from '@nestjs/common';
import type { Database } from '@rookery/database';
import {
  type InboundRequest,
  LeakyBucketRateLimiter,
  type OutboundRequest,
  type OutboundResponse,
} from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Clock, Logger } from '@rookery/platform';
import { isMailAddress, type MailRequest } from '@rookery/templates';
import { createTestModule } from '@rookery/testing/internal';
import { UsersHttpModule } from './users-http.module.js';

/** What the tests of this lib bring. */
export interface UsersFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly limited?: boolean;
  readonly logger?: Logger;
  /** Takes the mails that are queued; without it the server sends none. */
  readonly mails?: MailRequest[];
  /** Answers requests to other servers: status and JSON. */
  readonly outbound?: (request: OutboundRequest) => { readonly status: number; readonly body: unknown };
}

/** The lib's own Nest module, as the app builds it, over a given database. For this lib's tests. */
export interface UsersFixture {
  /** A service, or a controller. */
  get<T>(type: Type<T> | (abstract new (...args: never[]) => T)): T;
  /** A request as the HTTP layer hands it in. */
  request(
    method: string,
    path: string,
    body?: JsonObject,
    more?: { readonly token?: string; readonly ip?: string },
  ): InboundRequest;
  close(): Promise<void>;
}

export async function buildUsers({
  database,
  clock,
  settings,
  limited,
  logger,
  mails,
  outbound,
}: UsersFixtureParts): Promise<UsersFixture> {
  const limits: Readonly<Record<string, { perSecond: number; burstCount: number }>> = {
    'rc_login.failed_attempts': { perSecond: 0.01, burstCount: 3 },
    rc_ui_auth: { perSecond: 0.5, burstCount: 5 },
    rc_registration_token_validity: { perSecond: 0.1, burstCount: 5 },
  };
  const test = await createTestModule({
    imports: [UsersHttpModule],
    ...{ database, clock, logger },
    settings: {
      bcrypt_rounds: 4,
      enable_registration: true,
      enable_registration_without_verification: true,
      ...settings,
    },
    limiter: limited
      ? new LeakyBucketRateLimiter(clock, (name) => limits[name] ?? { perSecond: 100, burstCount: 100 })
      : undefined,
    outbound: {
      request: async (request: OutboundRequest) => {
        const { status, body } = outbound?.(request) ?? { status: 404, body: {} };
        return { status, body: Buffer.from(JSON.stringify(body)) } as OutboundResponse;
      },
    },
    mailer: mails && {
      subject: (name: string) => name,
      queue: async (_tx: unknown, mail: MailRequest) => {
        if (!isMailAddress(mail.to)) throw MatrixError.invalidParam('That is not an email address');
        mails.push(mail);
      },
    },
  });
  return {
    get: (type) => test.get(type),
    request: (method, path, body, more = {}) => ({
      requestId: 'test',
      method,
      url: path,
      query: Object.fromEntries(new URL(path, 'http://localhost').searchParams),
      headers: more.token === undefined ? {} : { authorization: `Bearer ${more.token}` },
      json: () => body,
      ip: more.ip ?? '127.0.0.1',
      userAgent: 'test',
      signal: new AbortController().signal,
      stream: Readable.from([]),
    }),
    close: () => test.close(),
  };
}
