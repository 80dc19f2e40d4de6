import { createHmac } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { InboundRequest } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Ids } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { newSecret, secretHash } from '../common/secrets.js';
import { InteractiveAuthRequired } from './uia-errors.js';
import type { UiaStage } from './uia-stage.js';
import {
  addressesOf,
  bindBody,
  consumeUiaSession,
  credentialsOf,
  findUiaSession,
  insertCredential,
  insertUiaSession,
  noteAddress,
  type UiaCredential,
  type UiaSession,
} from './uia.query.js';

/** How long somebody may take to go through the stages. */
export const uiaSessionLifetimeMs = 48 * 3_600_000;

/** Sessions that one user, or one address where nobody is logged in, may begin in a window of time. */
const budget = 300;
const budgetWindowMs = 600_000;

/** An operation that needs interactive auth. */
export interface UiaRequest {
  readonly request: InboundRequest;
  /** The body with its `auth`. */
  readonly body: JsonObject;
  /** Any of these lists of stages will do. */
  readonly flows: readonly (readonly string[])[];
  /** What the user is about to do, completing "You are about to …". */
  readonly description: string;
  /** The user who is logged in and must prove to be that user; absent where nobody is. */
  readonly userId?: string | undefined;
}

/** What a finished session proved. */
export interface UiaOutcome {
  /** By stage type. */
  readonly results: Readonly<Record<string, unknown>>;
  /** From where the session was used. */
  readonly addresses: readonly { readonly ip: string; readonly userAgent: string }[];
}

/** Parameters that clients are known to change on the way and that decide nothing. */
const unboundParameters = new Set(['auth', 'initial_device_display_name', 'x_show_msisdn']);

/**
 * Interactive auth: one state machine for every operation that needs it.
 *
 * A session belongs to one operation: method, path, user, and the parameters of the request, of which a digest is kept
 * that is keyed with the session id. The session id itself is stored as a hash. So a stolen database holds neither
 * passwords nor anything to finish a session with. A finished session is used up before the operation is carried out.
 * @spec client-server-api#user-interactive-authentication-api
 */
@Injectable()
export class UiaService {
  readonly #stages = new Map<string, UiaStage>();
  readonly #sources: ((type: string) => UiaStage | undefined)[] = [];
  readonly #begun = new LRUCache<string, { readonly sinceMs: number; count: number }>({
    maxSize: 100_000,
    sizeCalculation: () => 1,
  });

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
  ) {}

  /** Adds a stage. Flows may name it from then on. */
  addStage(stage: UiaStage): void {
    this.#stages.set(stage.type, stage);
  }

  /** Adds stages that come and go. */
  addStages(source: (type: string) => UiaStage | undefined): void {
    this.#sources.push(source);
  }

  /**
   * Resolves when the user has proved what one of the flows asks for.
   * @throws InteractiveAuthRequired until then
   * @throws MatrixError 400 `M_BAD_JSON`, `M_UNRECOGNIZED` (unknown stage), 403 `M_FORBIDDEN` (the session is of another
   *   operation or user), 429
   */
  async authenticate(operation: UiaRequest): Promise<UiaOutcome> {
    const { auth } = operation.body;
    if (auth !== undefined && auth !== null && !isJsonObject(auth))
      throw MatrixError.badJson("'auth' must be an object");
    const given = isJsonObject(auth) ? auth : {};
    if (given['session'] !== undefined && typeof given['session'] !== 'string')
      throw MatrixError.badJson("'auth.session' must be a string");
    if (given['type'] !== undefined && typeof given['type'] !== 'string')
      throw MatrixError.badJson("'auth.type' must be a string");
    let sessionId = given['session'];
    const sessionGiven = sessionId !== undefined;
    if (sessionId === undefined) sessionId = await this.#begin(operation);
    else {
      const session = await this.#find(sessionId);
      if (!session)
        throw new InteractiveAuthRequired(
          await this.#challenge(await this.#begin(operation), operation, []),
          new MatrixError(401, 'M_UNKNOWN', 'Unknown or expired session'),
        );
      await this.#checkBinding(sessionId, session, operation);
    }
    const completed = sessionGiven ? await credentialsOf(this.database, secretHash(sessionId)) : [];
    if (given['type'] !== undefined && !completed.some((one) => one.stageType === given['type'])) {
      try {
        completed.push(await this.#attempt(sessionId, given['type'], given, operation));
      } catch (error) {
        if (!MatrixError.is(error) || error.status === 429 || error.status >= 500 || error.errcode === 'M_UNRECOGNIZED')
          throw error;
        throw new InteractiveAuthRequired(await this.#challenge(sessionId, operation, completed), error);
      }
    }
    const done = new Set(completed.map((one) => one.stageType));
    if (!operation.flows.some((stages) => stages.every((stage) => done.has(stage)))) {
      throw new InteractiveAuthRequired(await this.#challenge(sessionId, operation, completed));
    }
    return this.#finish(sessionId, operation);
  }

  /** What a fallback page or a single sign-on login needs to know of a session. */
  async describe(sessionId: string): Promise<UiaSession | undefined> {
    return this.#find(sessionId);
  }

  /** The stage of a type. */
  stage(type: string): UiaStage | undefined {
    const own = this.#stages.get(type);
    if (own) return own;
    for (const source of this.#sources) {
      const found = source(type);
      if (found) return found;
    }
    return undefined;
  }

  /** Tries a stage from a fallback page. @throws MatrixError as {@link authenticate}, 404 `M_NOT_FOUND` (no such session) */
  async attemptFromPage(sessionId: string, type: string, fields: JsonObject, request: InboundRequest): Promise<void> {
    const session = await this.#find(sessionId);
    const stage = this.stage(type);
    if (!session || !stage) throw MatrixError.notFound('Unknown or expired session');
    const result = await stage.check({ auth: fields, userId: session.userId, request });
    await this.#record(sessionId, stage, result);
  }

  /**
   * Records a stage that was passed elsewhere (single sign-on).
   * @param userId who proved to be there; must be the user of the session
   * @throws MatrixError 404 `M_NOT_FOUND`, 403 `M_FORBIDDEN`
   */
  async completeFor(sessionId: string, type: string, userId: string): Promise<void> {
    const session = await this.#find(sessionId);
    if (!session) throw MatrixError.notFound('Unknown or expired session');
    if (session.userId !== userId) throw MatrixError.forbidden('The session is of another user');
    await this.#record(sessionId, { type, check: async () => userId }, userId);
  }

  async #begin(operation: UiaRequest): Promise<string> {
    this.#budget(operation);
    const sessionId = newSecret(this.ids, 'uia');
    const { request } = operation;
    const session: UiaSession = {
      createdMs: this.clock.nowMs(),
      method: request.method,
      uri: pathOf(request),
      bodyDigest: digest(sessionId, operation.body),
      userId: operation.userId,
      description: operation.description,
    };
    await this.database.write((tx) => insertUiaSession(tx, secretHash(sessionId), session), { name: 'uia_begin' });
    return sessionId;
  }

  /** A session is a row that lives for two days: nobody gets them without end. */
  #budget({ userId, request }: UiaRequest): void {
    const key = userId ?? networkOf(request.ip);
    const nowMs = this.clock.nowMs();
    const begun = this.#begun.get(key);
    if (!begun || nowMs - begun.sinceMs >= budgetWindowMs) this.#begun.set(key, { sinceMs: nowMs, count: 1 });
    else if (begun.count >= budget) throw MatrixError.limitExceeded(begun.sinceMs + budgetWindowMs - nowMs);
    else begun.count++;
  }

  async #find(sessionId: string): Promise<UiaSession | undefined> {
    return findUiaSession(this.database, secretHash(sessionId), this.clock.nowMs() - uiaSessionLifetimeMs);
  }

  async #checkBinding(sessionId: string, session: UiaSession, operation: UiaRequest): Promise<void> {
    const other = (): never => {
      throw MatrixError.forbidden('The request has changed during its authentication');
    };
    if (
      session.method !== operation.request.method ||
      session.uri !== pathOf(operation.request) ||
      session.userId !== operation.userId
    )
      other();
    const bodyDigest = digest(sessionId, operation.body);
    if (session.bodyDigest !== undefined) {
      if (session.bodyDigest !== bodyDigest) other();
    } else if (bodyDigest !== undefined) {
      const bound = await this.database.write((tx) => bindBody(tx, secretHash(sessionId), bodyDigest), {
        name: 'uia_bind',
      });
      if (bound !== bodyDigest) other();
    }
  }

  async #attempt(sessionId: string, type: string, auth: JsonObject, operation: UiaRequest): Promise<UiaCredential> {
    const stage = operation.flows.some((stages) => stages.includes(type)) ? this.stage(type) : undefined;
    if (!stage) throw new MatrixError(400, 'M_UNRECOGNIZED', 'This stage is not offered here');
    const result = await stage.check({ auth, userId: operation.userId, request: operation.request });
    await this.#record(sessionId, stage, result);
    return { stageType: type, result };
  }

  async #record(sessionId: string, stage: UiaStage, result: unknown): Promise<void> {
    await this.database.write(
      async (tx) => {
        // A second request with the same proof finds the stage passed: it is not accepted twice.
        if (!(await insertCredential(tx, secretHash(sessionId), { stageType: stage.type, result }))) return;
        if (stage.accept && !(await stage.accept(tx, result)))
          throw new MatrixError(401, 'M_UNAUTHORIZED', 'The proof does not count anymore');
      },
      { name: 'uia_stage' },
    );
  }

  /** Uses the session up and gives what it proved: the rows decide, not what a request running beside this one has seen. */
  async #finish(sessionId: string, operation: UiaRequest): Promise<UiaOutcome> {
    const hash = secretHash(sessionId);
    const { ip, userAgent } = operation.request;
    const outcome = await this.database.write(
      async (tx) => {
        await noteAddress(tx, hash, ip, userAgent.slice(0, 512));
        const addresses = await addressesOf(tx, hash);
        const completed = await credentialsOf(tx, hash);
        return (await consumeUiaSession(tx, hash)) ? { addresses, completed } : undefined;
      },
      { name: 'uia_finish' },
    );
    if (!outcome) {
      const challenge = await this.#challenge(await this.#begin(operation), operation, []);
      throw new InteractiveAuthRequired(challenge, new MatrixError(401, 'M_UNKNOWN', 'The session has been used'));
    }
    return {
      results: Object.fromEntries(outcome.completed.map((one) => [one.stageType, one.result])),
      addresses: outcome.addresses.map((one) => ({ ip: one.ip, userAgent: one.user_agent })),
    };
  }

  async #challenge(session: string, operation: UiaRequest, completed: readonly UiaCredential[]) {
    const params: Record<string, object> = {};
    for (const type of new Set(operation.flows.flat())) {
      const needed = this.stage(type)?.params?.();
      if (needed) params[type] = needed;
    }
    return { session, flows: operation.flows, params, completed: completed.map((one) => one.stageType) };
  }
}

/** An IPv6 client has a whole network of addresses. */
function networkOf(ip: string): string {
  if (!ip.includes(':') || ip.includes('.')) return ip;
  const [head, tail] = ip.split('::').map((half) => half.split(':').filter((group) => group !== '')) as [
    string[],
    string[]?,
  ];
  const gap = tail ? Array<string>(Math.max(0, 8 - head.length - tail.length)).fill('0') : [];
  return [...head, ...gap, ...(tail ?? [])].slice(0, 4).join(':');
}

const pathOf = (request: InboundRequest): string => request.url.split('?', 1)[0]!.slice(0, 2000);

/** `undefined` for a request without parameters: it asks for the flows, and the parameters come with the first stage. */
function digest(sessionId: string, body: JsonObject): string | undefined {
  const keys = Object.keys(body).filter(
    (key) => !unboundParameters.has(key) && body[key] !== undefined && body[key] !== null,
  );
  if (keys.length === 0) return undefined;
  const hmac = createHmac('sha256', sessionId);
  for (const key of keys.sort()) hmac.update(JSON.stringify([key, sorted(body[key])]));
  return hmac.digest('base64url');
}

/** The same value with its keys in order, so that the digest does not depend on how a client writes JSON. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isJsonObject(value)) return value;
  return Object.keys(value)
    .sort()
    .map((key) => [key, sorted(value[key])]);
}
