import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Database, type Tx } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, Logger, type RequestOrigin } from '@rookery/platform';
import { secretHash } from '../common/secrets.js';
import { digestOfParameters, openParameters, parametersOf, sealParameters } from './parameters.js';
import { SessionIds } from './session-ids.js';
import { InteractiveAuthRequired, OtherUserProved } from './uia-errors.js';
import type { StageAttempt, UiaStage } from './uia-stage.js';
import {
  addressesOf,
  bindParameters,
  credentialsOf,
  finishUiaSession,
  findUiaSession,
  insertCredential,
  insertUiaSession,
  lockUiaSession,
  noteAddress,
  type UiaCredential,
  type UiaSession,
} from './uia.query.js';

/** How long somebody may take to go through the stages. */
export const uiaSessionLifetimeMs = 48 * 3_600_000;

/** How long what a session came to is told again to a client that lost the answer. */
const outcomeToldMs = 3_600_000;

/** An operation that needs interactive auth. */
export interface UiaRequest {
  readonly request: RequestOrigin;
  /** The body with its `auth`. */
  readonly body: JsonObject;
  /** Any of these lists of stages will do. */
  readonly flows: readonly (readonly string[])[];
  /** What the user is about to do, completing "You are about to …". */
  readonly description: string;
  /** The user who is logged in and must prove to be that user; absent where nobody is. */
  readonly userId?: string | undefined;
  /** The parameters may change from stage to stage, as those of clients in use do; the last ones count. */
  readonly mayChange?: boolean;
  /** What an address is proved for; an account that is about to be made, unless told. */
  readonly purpose?: 'password_reset';
}

/** What a session proved. */
export interface UiaProof {
  readonly sessionId: string;
  /** By stage type. */
  readonly results: Readonly<Record<string, unknown>>;
  /** From where the session was used. */
  readonly addresses: readonly { readonly ip: string; readonly userAgent: string }[];
}

/** A request with what an earlier one of its session has said. */
export interface Recalled<Body extends JsonObject> {
  readonly body: Body;
  /** What the session came to, where it is over and this request asks for the same once more. */
  readonly outcome?: string | undefined;
}

/**
 * Interactive auth: one state machine for every operation that needs it.
 *
 * A session belongs to one operation: method, path, user, and the parameters of the request, of which a digest is kept
 * that is keyed with the session id. Where nobody is logged in, the parameters are remembered between the stages, sealed
 * with the session id. The session id itself is stored as a hash. So a stolen database holds neither passwords nor
 * anything to finish a session with. A session has a row from its first parameters or its first passed stage on; until then its id says all
 * there is to know. What a finished session came to stays with it, so that it cannot be used twice.
 * @spec client-server-api#user-interactive-authentication-api
 */
@Injectable()
export class UiaService {
  readonly #stages = new Map<string, UiaStage>();
  readonly #sources: ((type: string) => UiaStage | undefined)[] = [];
  readonly #sessionIds: SessionIds;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    ids: Ids,
    config: Config,
    private readonly limiter: RateLimiter,
    private readonly logger: Logger,
  ) {
    this.#sessionIds = new SessionIds(config.get('macaroon_secret_key') ?? ids.bytes(32), ids);
  }

  /** Adds a stage. Flows may name it from then on. */
  addStage(stage: UiaStage): void {
    this.#stages.set(stage.type, stage);
  }

  /** Adds stages that come and go. */
  addStages(source: (type: string) => UiaStage | undefined): void {
    this.#sources.push(source);
  }

  /**
   * Resolves when the user has proved what one of the flows asks for, and uses the session up.
   * @throws InteractiveAuthRequired until then
   * @throws MatrixError 400 `M_BAD_JSON`, `M_UNRECOGNIZED` (unknown stage), 403 `M_FORBIDDEN` (the session is of another
   *   operation or user, or another user was proved), 429
   */
  async authenticate(operation: UiaRequest): Promise<UiaProof> {
    const proof = await this.prove(operation);
    const isFirst = await this.database.write((tx) => this.settle(tx, proof, ''), { name: 'uia_finish' });
    if (!isFirst) throw await this.#beginAnew(operation, 'The session has been used');
    return proof;
  }

  /**
   * As {@link authenticate}, but for an operation that uses the session up itself, by {@link settle} in its own
   * transaction: what it does and that it is done hold together.
   */
  async prove(operation: UiaRequest): Promise<UiaProof> {
    const given = authOf(operation.body);
    const { type } = given;
    const session = given.session === undefined ? undefined : await this.#find(given.session);
    if (given.session !== undefined && !session) throw await this.#beginAnew(operation, 'Unknown or expired session');
    if (session?.outcome !== undefined) throw await this.#beginAnew(operation, 'The session has been used');
    const sessionId = given.session ?? (await this.#begin(operation));
    if (session) await this.#checkBinding(sessionId, session, operation);
    const completed = session ? await credentialsOf(this.database, secretHash(sessionId)) : [];
    if (type !== undefined && !completed.some((one) => one.stageType === type)) {
      try {
        if (session && session.bodyDigest === undefined && completed.length === 0)
          await this.#count(operation.userId, operation.request);
        completed.push(await this.#attempt(sessionId, type, given.fields, operation));
      } catch (error) {
        if (
          !MatrixError.is(error) ||
          error instanceof OtherUserProved ||
          error.status === 429 ||
          error.status >= 500 ||
          error.errcode === 'M_UNRECOGNIZED'
        )
          throw error;
        throw new InteractiveAuthRequired(await this.#challenge(sessionId, operation, completed), error);
      }
    }
    const done = new Set(completed.map((one) => one.stageType));
    if (!operation.flows.some((stages) => stages.every((stage) => done.has(stage)))) {
      throw new InteractiveAuthRequired(await this.#challenge(sessionId, operation, completed));
    }
    return this.#proofOf(sessionId, operation);
  }

  /**
   * Uses a session up. Of several requests that finish one session, one does.
   * @param outcome what {@link recall} tells a client that asks again
   * @returns whether this is the one
   */
  async settle(tx: Tx, proof: UiaProof, outcome: string): Promise<boolean> {
    return finishUiaSession(tx, secretHash(proof.sessionId), { atMs: this.clock.nowMs(), outcome });
  }

  /** Ends a session whose operation came to nothing, unless it was used meanwhile: its stages take back what they hold. */
  async giveUp(proof: UiaProof): Promise<void> {
    await this.database.write(
      async (tx) => {
        if (!(await this.settle(tx, proof, ''))) return;
        for (const [type, result] of Object.entries(proof.results)) await this.stage(type)?.release?.(tx, result);
      },
      { name: 'uia_give_up' },
    );
  }

  /**
   * Completes a request that nobody is logged in for by the parameters that its session remembers, since clients need not
   * repeat them with each stage.
   */
  async recall<Body extends JsonObject>(request: RequestOrigin, body: Body): Promise<Recalled<Body>> {
    const { session: sessionId } = authOf(body);
    const session = sessionId === undefined ? undefined : await this.#find(sessionId);
    if (sessionId === undefined || !session || !isOf(session, request, undefined)) return { body };
    const remembered = session.parameters === undefined ? {} : openParameters(sessionId, session.parameters);
    const whole = { ...remembered, ...withoutNulls(body) } as Body;
    const { outcome } = session;
    const isRepeated =
      outcome !== undefined &&
      outcome.outcome !== '' &&
      this.clock.nowMs() - outcome.atMs < outcomeToldMs &&
      digestOfParameters(sessionId, whole) === session.bodyDigest;
    return { body: whole, outcome: isRepeated ? outcome.outcome : undefined };
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
  async attemptFromPage(sessionId: string, type: string, fields: JsonObject, request: RequestOrigin): Promise<void> {
    const session = await this.#find(sessionId);
    const stage = this.stage(type);
    if (!session || !stage) throw MatrixError.noSuchSession();
    if (session.bodyDigest === undefined) await this.#count(session.userId, request);
    const result = await this.#check(stage, { auth: fields, userId: session.userId, request });
    await this.#record(sessionId, stage, result);
  }

  /**
   * Records a stage that was passed elsewhere (single sign-on).
   * @param userId who proved to be there; must be the user of the session
   * @throws MatrixError 404 `M_NOT_FOUND`, 403 `M_FORBIDDEN`
   */
  async completeFor(sessionId: string, type: string, userId: string): Promise<void> {
    const session = await this.#find(sessionId);
    if (!session) throw MatrixError.noSuchSession();
    if (session.userId !== userId) throw MatrixError.forbidden('The session is of another user');
    await this.#record(sessionId, { type, check: async () => userId }, userId);
  }

  async #begin(operation: UiaRequest): Promise<string> {
    const { request, userId, description, body } = operation;
    const about = { method: request.method, uri: uriOf(request), userId, description };
    const { sessionId, session } = this.#sessionIds.make({ ...about, createdMs: this.clock.nowMs() });
    const bodyDigest = digestOfParameters(sessionId, body);
    // Somebody who merely asks for the flows has begun nothing.
    if (bodyDigest === undefined) return sessionId;
    await this.#count(userId, request);
    const parameters = userId === undefined ? sealParameters(sessionId, body) : undefined;
    await this.database.write(
      (tx) => insertUiaSession(tx, secretHash(sessionId), { ...session, bodyDigest, parameters }),
      {
        name: 'uia_begin',
      },
    );
    return sessionId;
  }

  /** A session is about to become a row that lives for two days: nobody gets those without end. */
  async #count(userId: string | undefined, request: RequestOrigin): Promise<void> {
    await this.limiter.take('rc_ui_auth', userId ?? request.ip);
  }

  async #beginAnew(operation: UiaRequest, why: string): Promise<InteractiveAuthRequired> {
    const challenge = await this.#challenge(await this.#begin(operation), operation, []);
    return new InteractiveAuthRequired(challenge, MatrixError.authStageFailed(why));
  }

  /** A session that has a row, or that has none yet. */
  async #find(sessionId: string): Promise<UiaSession | undefined> {
    const createdAfterMs = this.clock.nowMs() - uiaSessionLifetimeMs;
    const stored = await findUiaSession(this.database, secretHash(sessionId), createdAfterMs);
    if (stored) return stored;
    const session = this.#sessionIds.read(sessionId);
    return session && session.createdMs > createdAfterMs ? session : undefined;
  }

  async #checkBinding(sessionId: string, session: UiaSession, operation: UiaRequest): Promise<void> {
    const { request, userId, body, mayChange = false } = operation;
    const bodyDigest = digestOfParameters(sessionId, body);
    const isBound = session.bodyDigest !== undefined && !mayChange;
    if (!isOf(session, request, userId) || (isBound && session.bodyDigest !== bodyDigest)) throw operationChanged();
    if (bodyDigest === undefined || bodyDigest === session.bodyDigest) return;
    if (session.bodyDigest === undefined) await this.#count(userId, request);
    else
      this.logger.info('A request changed during its authentication', {
        path: request.url.split('?', 1)[0],
        session: secretHash(sessionId).slice(0, 8),
      });
    const parameters = userId === undefined ? sealParameters(sessionId, body) : undefined;
    const holds = await this.database.write(
      async (tx) => {
        await insertUiaSession(tx, secretHash(sessionId), { ...session, bodyDigest: undefined });
        return bindParameters(tx, secretHash(sessionId), { bodyDigest, parameters, mayReplace: mayChange });
      },
      { name: 'uia_bind' },
    );
    if (holds !== bodyDigest) throw operationChanged();
  }

  async #attempt(sessionId: string, type: string, auth: JsonObject, operation: UiaRequest): Promise<UiaCredential> {
    const stage = operation.flows.some((stages) => stages.includes(type)) ? this.stage(type) : undefined;
    if (!stage) throw MatrixError.unrecognizedKind('This stage is not offered here');
    const { userId, request, purpose } = operation;
    const result = await this.#check(stage, { auth, userId, request, purpose });
    await this.#record(sessionId, stage, result);
    return { stageType: type, result };
  }

  async #check(stage: UiaStage, attempt: StageAttempt): Promise<unknown> {
    const { failures } = stage;
    if (failures === undefined) return stage.check(attempt);
    const { ip } = attempt.request;
    if (!(await this.limiter.mayTake(failures, ip))) await this.limiter.take(failures, ip);
    try {
      return await stage.check(attempt);
    } catch (error) {
      // Counted; that the bucket is now empty is told to the next attempt.
      await this.limiter.take(failures, ip).catch(() => undefined);
      throw error;
    }
  }

  async #record(sessionId: string, stage: UiaStage, result: unknown): Promise<void> {
    const hash = secretHash(sessionId);
    const unstored = this.#sessionIds.read(sessionId);
    await this.database.write(
      async (tx) => {
        if (unstored) await insertUiaSession(tx, hash, unstored);
        // Held until this is done: a session that is finished meanwhile takes nothing more, and leaves nothing behind.
        if (!(await lockUiaSession(tx, hash))) return;
        // A second request with the same proof finds the stage passed: it is not accepted twice.
        if (!(await insertCredential(tx, hash, { stageType: stage.type, result }))) return;
        if (stage.accept && !(await stage.accept(tx, result)))
          throw MatrixError.unauthorized('The proof does not count anymore');
      },
      { name: 'uia_stage' },
    );
  }

  /** What a session proved: the rows decide, not what a request running beside this one has seen. */
  async #proofOf(sessionId: string, operation: UiaRequest): Promise<UiaProof> {
    const hash = secretHash(sessionId);
    const { ip, userAgent } = operation.request;
    const { addresses, completed } = await this.database.write(
      async (tx) => {
        if (await lockUiaSession(tx, hash)) await noteAddress(tx, hash, ip, userAgent.slice(0, 512));
        return { addresses: await addressesOf(tx, hash), completed: await credentialsOf(tx, hash) };
      },
      { name: 'uia_proof' },
    );
    return {
      sessionId,
      results: Object.fromEntries(completed.map((one) => [one.stageType, one.result])),
      addresses: addresses.map((one) => ({ ip: one.ip, userAgent: one.user_agent })),
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

/** What a body says about its session. @throws MatrixError 400 `M_BAD_JSON` */
function authOf({ auth }: JsonObject): {
  readonly session?: string | undefined;
  readonly type?: string | undefined;
  readonly fields: JsonObject;
} {
  if (auth !== undefined && auth !== null && !isJsonObject(auth)) throw MatrixError.badJson("'auth' must be an object");
  const fields = isJsonObject(auth) ? auth : {};
  const text = (name: 'session' | 'type'): string | undefined => {
    const value = fields[name] ?? undefined;
    if (value !== undefined && typeof value !== 'string') throw MatrixError.badJson(`'auth.${name}' must be a string`);
    return value;
  };
  return { session: text('session'), type: text('type'), fields };
}

const withoutNulls = (body: JsonObject): JsonObject => ({
  ...(body['auth'] === undefined ? {} : { auth: body['auth'] }),
  ...parametersOf(body),
});

/** Which address a session is for; of no use but to be compared, so that its length is bounded. */
const uriOf = (request: RequestOrigin): string =>
  createHash('sha256').update(request.url.split('?', 1)[0]!).digest('base64url');

const isOf = (session: UiaSession, request: RequestOrigin, userId: string | undefined): boolean =>
  session.method === request.method && session.uri === uriOf(request) && session.userId === userId;

const operationChanged = (): MatrixError => MatrixError.forbidden('The request has changed during its authentication');
