import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { FederationRequestError, KeyRing } from '@rookery/federation-client';
import { isValidServerName, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { KeyedMutex, Logger, Semaphore, SingleFlight } from '@rookery/platform';
import { EventPersister, InboundEvents, RoomStateReader } from '@rookery/rooms';
import { type Attempt, Candidates, WrongAnswer } from './candidates.js';
import { MembershipHandshake } from './membership-handshake.js';
import { RemoteState } from './remote-state.js';
import { withSignatureOf } from './returned-event.js';
import { type ProvenState, refusalOf } from './room-proof.js';
import { StoredStates } from './stored-states.js';
import { ToldJoin } from './told-join.js';

/** Joins whose answers are in memory at once; and those of one user. */
const maxAtOnce = 8;
const maxWaiting = 100;
const maxPerUser = 4;
/** Of those, joins whose answers are larger than usual, maybe hundreds of megabytes. */
const maxHugeAtOnce = 2;
/** Servers of a room that are remembered while its members are not known. */
const maxServers = 20_000;

interface JoinAttempt {
  readonly userId: string;
  readonly roomId: string;
  readonly content: Readonly<JsonObject>;
  /** The room's create event, where its state is known; what an invite says about a room's version may be wrong. */
  readonly create: RoomEvent | undefined;
}

const refuse = (): MatrixError => MatrixError.limitExceeded(10_000);

/** Joins rooms through servers that are in them. */
@Injectable()
export class RemoteJoins {
  readonly #turns = new Semaphore(maxAtOnce, { maxWaiting, maxPerHolder: maxPerUser, refuse });
  readonly #hugeTurns = new Semaphore(maxHugeAtOnce, { maxWaiting: maxAtOnce, maxPerHolder: maxAtOnce, refuse });
  /** By user and room: who asks again meanwhile waits for the same. */
  readonly #joining = new SingleFlight<void>();
  /** By room: who comes in first brings its state. */
  readonly #entering = new KeyedMutex({ maxWaiting, refuse });
  /** By room: those who wait until somebody has come in, all of them in one place of its queue. */
  readonly #onlookers = new SingleFlight<void>();
  readonly #logger: Logger;

  // Nine parameters: the steps of a join: whom to ask, the handshake, the proof, and storing in one of three ways.
  constructor(
    private readonly candidates: Candidates,
    private readonly handshake: MembershipHandshake,
    private readonly remoteState: RemoteState,
    private readonly keys: KeyRing,
    private readonly persister: EventPersister,
    private readonly inbound: InboundEvents,
    private readonly state: RoomStateReader,
    private readonly states: StoredStates,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * Joins a room in which this server has nobody. Everything that comes back is checked before anything is stored.
   * @throws MatrixError 404, 403, 400 as servers of the room say; 502 or 504 when none of them helps; 429 when too many
   *   joins are under way
   * @spec server-server-api#joining-rooms
   */
  join(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void> {
    const key = `${userId} ${roomId}`;
    return this.#joining.run(key, () => this.#entering.run(roomId, () => this.#join(userId, roomId, servers, content)));
  }

  /** Whether somebody is just coming into a room in which this server has nobody, or tries to. */
  isEntering(roomId: string): boolean {
    return this.#entering.isBusy(roomId);
  }

  /** Resolves once those who are just coming into a room are in it, or are not going to be. Never rejects. */
  async entered(roomId: string): Promise<void> {
    if (!this.isEntering(roomId)) return;
    // Where too many wait nothing can be told.
    await this.#onlookers.run(roomId, () => this.#entering.run(roomId, () => Promise.resolve())).catch(() => undefined);
  }

  async #join(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void> {
    const member = (await this.state.currentEvent(roomId, 'm.room.member', userId))?.event;
    // Done by an earlier request, after this one was looked at.
    if (member?.content['membership'] === 'join') return;
    // Somebody else of this server has come in meanwhile.
    if (await this.state.isOurs(roomId)) return this.joinAuthorised(userId, roomId, servers, content);
    await this.#turns.run(
      () =>
        this.candidates.first(servers, async (server, attempt) => {
          const create = (await this.state.currentEvent(roomId, 'm.room.create'))?.event;
          const request = { userId, roomId, content, create };
          await this.#handOver(server, attempt, request, (event, answer) => this.#enter(server, create, event, answer));
        }),
      { holder: userId },
    );
  }

  /** @returns whether what was told is kept: somebody else gives it back */
  async #enter(
    server: string,
    create: RoomEvent | undefined,
    event: RoomEvent,
    told: ToldJoin | JsonObject,
  ): Promise<boolean> {
    const { roomId, rules } = event;
    // Who comes in again while members are still on their way needs no state: it follows from what they are fetched for.
    const again = await this.inbound.receiveInPart(server, roomId, { event, origin: server, isHandedOver: true });
    if (again?.kind === 'accepted' || again?.kind === 'known') return false;
    if (again) throw notLetIn(again.kind);
    const omitted = partialJoinOf(server, told);
    if (omitted && !this.handshake.mayOmit) throw new WrongAnswer(server, 'a state without its members');
    const large = told instanceof ToldJoin && told.isLarge && this.handshake.mayOmit ? told : undefined;
    // What lacks members is asked for once more in any case.
    const later = omitted ? undefined : large;
    const { state, auth_chain: authChain } = await (large ? large.core() : wholeOf(told));
    const proven = await this.remoteState.read(server, { state, authChain }, rules, roomId);
    if (create && proven.state.every(({ eventId }) => eventId !== create.eventId)) {
      throw new WrongAnswer(server, 'another create event than the one that is known');
    }
    const partial = later ? { via: server, servers: [...new Set([server, ...later.servers])] } : omitted;
    const known = await this.remoteState.withAuthOf(proven, event);
    const refused = refusalOf(event, known, partial !== undefined);
    if (refused !== undefined && followsBan(event, known)) throw MatrixError.forbidden('You are banned from this room');
    if (refused !== undefined) throw new WrongAnswer(server, `the state does not allow the join: ${refused}`);
    // Before anybody can ask for it.
    if (later) await this.states.keep(event.eventId, later);
    const remote = { event, isHandedOver: true };
    const verdict = await this.persister.receiveWithState(rules.version, remote, proven, partial);
    if (verdict.kind === 'accepted' || verdict.kind === 'known') return later !== undefined;
    await this.states.drop(event.eventId);
    this.#logger.warn('A join through another server could not be stored', { roomId, verdict: verdict.kind });
    throw new WrongAnswer(server, 'the join does not stand in the state that it told');
  }

  /**
   * Joins a room in which this server is, but in which only users of other servers may let somebody in, or tell whether they are
   * banned.
   * @throws MatrixError as {@link join}
   * @spec server-server-api#restricted-rooms
   */
  async joinAuthorised(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void> {
    await this.#turns.run(
      () =>
        this.candidates.first(servers, async (server, attempt) => {
          const create = (await this.state.currentEvent(roomId, 'm.room.create'))?.event;
          const request = { userId, roomId, content, create };
          // Of the room only the event is wanted.
          await this.#handOver(server, attempt, request, async (event) => {
            const remote = { event, origin: server, isHandedOver: true };
            const verdict = await this.inbound.receive(server, roomId, remote);
            if (verdict.kind === 'accepted' || verdict.kind === 'known') return false;
            if (verdict.kind === 'missingAncestors')
              throw new WrongAnswer(server, 'the room before the join is not known');
            throw notLetIn(verdict.kind);
          });
        }),
      { holder: userId },
    );
  }

  /**
   * Makes a join with a server. What comes back is checked as far as the event is concerned, and at hand while it is used.
   * @param use throws what ends the join; whether it keeps the answer
   */
  async #handOver(
    server: string,
    attempt: Attempt,
    { userId, roomId, content, create }: JoinAttempt,
    use: (event: RoomEvent, answer: ToldJoin | JsonObject) => Promise<boolean>,
  ): Promise<void> {
    const room = { roomId, knownVersion: create?.rules.version };
    const own = await this.handshake.prepare('join', server, room, userId, content, attempt);
    let release: (() => void) | undefined;
    const mayGrow = (): boolean => (release ??= this.#hugeTurns.tryAcquire(server)) !== undefined;
    const finish = async (huge: boolean): Promise<void> => {
      const answer = await this.handshake.join(server, own, huge, mayGrow);
      let isKept = false;
      try {
        isKept = await use(await this.#withSignatures(server, own, fieldOf(answer, 'event')), answer);
      } finally {
        if (answer instanceof ToldJoin && !isKept) await answer.close();
      }
    };
    try {
      await finish(false);
    } catch (error) {
      const isTooLarge = error instanceof FederationRequestError && error.reason === 'too_large';
      if (!isTooLarge || release) throw error;
      // The same event once more: how large an answer is shows only while it comes.
      await this.#hugeTurns.run(() => finish(true), { holder: server });
    } finally {
      release?.();
    }
  }

  /** The event as the others of the room have it: with the signature of the server that let somebody in. */
  async #withSignatures(server: string, own: RoomEvent, told: unknown): Promise<RoomEvent> {
    if (own.content['join_authorised_via_users_server'] === undefined) return own;
    const signed = await withSignatureOf(this.keys, server, own, told);
    const verdict = await this.keys.verifyEvent(signed);
    if (!verdict.valid) throw new WrongAnswer(server, `the signature of ${verdict.serverName} is ${verdict.reason}`);
    return signed;
  }
}

/** The error for whose join was not taken in this server's own room; by the verdict. */
const notLetIn = (verdict: string): MatrixError =>
  verdict === 'unjudged'
    ? MatrixError.internal('A module of this server failed')
    : MatrixError.forbidden('The room does not let you in');

const fieldOf = (answer: ToldJoin | JsonObject, key: string): unknown =>
  answer instanceof ToldJoin ? answer.field(key) : answer[key];

const wholeOf = (answer: ToldJoin | JsonObject): Promise<JsonObject> =>
  answer instanceof ToldJoin ? answer.whole() : Promise.resolve(answer);

/**
 * What another server says of a state without its members; `undefined` where it has left out nobody.
 * @throws WrongAnswer
 */
function partialJoinOf(server: string, answer: ToldJoin | JsonObject): { via: string; servers: string[] } | undefined {
  if (fieldOf(answer, 'members_omitted') !== true) return undefined;
  const told = fieldOf(answer, 'servers_in_room');
  if (!Array.isArray(told) || told.length === 0)
    throw new WrongAnswer(server, 'members left out and no servers instead');
  const servers = told.slice(0, maxServers).filter((name): name is string => typeof name === 'string');
  return { via: server, servers: [...new Set([server, ...servers.filter(isValidServerName)])] };
}

/** Whether a join names an event by which its user is banned. */
const followsBan = ({ authEventIds, stateKey }: RoomEvent, { events }: ProvenState): boolean =>
  authEventIds.some((id) => {
    const auth = events.get(id);
    return auth?.type === 'm.room.member' && auth.stateKey === stateKey && auth.content['membership'] === 'ban';
  });
