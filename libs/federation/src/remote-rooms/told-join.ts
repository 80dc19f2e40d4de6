import { parseJson, type RoomEvent } from '@rookery/events';
import { domainOf, type JsonObject } from '@rookery/matrix-types';
import { mayComeLater } from '@rookery/rooms';
import { authTypesFor, stateKeyOf } from '@rookery/state-res';
import type { Readable } from 'node:stream';
import { faultOf, lookForBeginning, maxEventBytes, ToldEvents } from './told-events.js';

/** Longest value beside the events, bytes: the names of all servers of a large room. */
const maxFieldBytes = 2 * 1_048_576;
/** So many members are taken with the join; with more of them, or of other state that may come later, it does not wait for them. */
const fewMembers = 200;
/** So much other state that may come later is taken with the join. */
const maxOthers = 500;
/** Other servers of the room that are remembered. */
const maxServers = 20_000;
const lists: ReadonlySet<string> = new Set(['state', 'auth_chain']);

/** What another server tells of a room as an answer to a join: events that lie in a file, and what stands beside them. */
export class ToldJoin {
  /** Ids of the state before the join. */
  readonly state = new Set<string>();
  /** Servers with a user who is joined in that state. */
  readonly servers = new Set<string>();
  /** Of the state: what may not come later, the members by whom the join is judged, and some of the rest. */
  readonly #core = new Set<string>();
  #others = 0;
  readonly #creates: RoomEvent[] = [];
  #events: ToldEvents | undefined;

  private constructor(
    /** Who tells it. */
    readonly server: string,
    private readonly join: RoomEvent,
  ) {}

  /**
   * Takes an answer as it arrives; only the format of its events is checked.
   * @param join the event that was handed over
   * @param maxEvents of the state, and as many of the auth chain
   * @param arrived told how many bytes have arrived; throws what ends the reading
   * @throws WrongAnswer when the answer is not what it has to be; what the stream, the file system or `arrived` throws
   */
  static async read(
    server: string,
    body: Readable,
    join: RoomEvent,
    maxEvents: number,
    arrived: (sizeBytes: number) => void = () => undefined,
  ): Promise<ToldJoin> {
    const told = new ToldJoin(server, join);
    const judging = new Set(authTypesFor(join, join.rules).map(([type, key]) => stateKeyOf(type, key)));
    try {
      told.#events = await ToldEvents.read(body, {
        ...{ lists, rules: join.rules, roomId: join.roomId },
        limits: { maxBytes: maxEventBytes, maxKeptBytes: maxFieldBytes, maxElements: 2 * maxEvents },
        look: (event, list) => told.#look(event, list, judging),
        keys: new Set(['event', 'members_omitted', 'servers_in_room']),
        arrived,
      });
      return told;
    } catch (error) {
      body.destroy();
      throw faultOf(server, error);
    }
  }

  #look(event: RoomEvent, list: string, judging: ReadonlySet<string>): void {
    if (event.type === 'm.room.create') this.#creates.push(event);
    if (list !== 'state') return;
    const { eventId, type, stateKey, content } = event;
    this.state.add(eventId);
    const isMember = type === 'm.room.member';
    const isLater =
      stateKey !== undefined &&
      mayComeLater(type) &&
      !judging.has(stateKeyOf(type, stateKey)) &&
      (isMember || ++this.#others > maxOthers);
    if (!isLater) this.#core.add(eventId);
    if (isMember && stateKey !== undefined && content['membership'] === 'join' && this.servers.size < maxServers)
      this.servers.add(domainOf(stateKey));
  }

  get events(): ToldEvents {
    return this.#events!;
  }

  /** A value that stands beside the events. */
  field(key: string): unknown {
    const text = this.events.fields.get(key);
    return text === undefined ? undefined : parseJson(text);
  }

  /** Whether so much of the state may come later that a join need not wait for it. */
  get isLarge(): boolean {
    return this.state.size - this.#core.size > fewMembers;
  }

  /** All of the state and its auth chain, as they came. */
  async whole(): Promise<JsonObject> {
    const around = [...this.events.ids].filter((id) => !this.state.has(id));
    return { state: await this.events.read(this.state), auth_chain: await this.events.read(around) } as JsonObject;
  }

  /** The same without what may come later, as far as neither the rest nor the join is judged by it. @throws WrongAnswer */
  async core(): Promise<JsonObject> {
    for (const create of this.#creates) lookForBeginning(this.server, this.join, create);
    const needed = [...this.events.withChains([...this.join.authEventIds, ...this.#core])];
    return {
      state: await this.events.read(needed.filter((id) => this.state.has(id))),
      auth_chain: await this.events.read(needed.filter((id) => !this.state.has(id))),
    } as JsonObject;
  }

  /** Gives the file back. */
  close(): Promise<void> {
    return this.events.close();
  }
}
