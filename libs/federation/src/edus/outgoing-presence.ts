import { Injectable, type OnModuleInit } from '@nestjs/common';
import { EphemeralHooks, PresenceReader, type PresenceState } from '@rookery/ephemeral';
import { domainOf } from '@rookery/matrix-types';
import { BackgroundTasks, batchesOf, Clock, Config, Lifecycle, Logger, Metrics, ownTurn } from '@rookery/platform';
import { FederationSender } from '../sender/federation-sender.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { BestEffort } from './best-effort.js';

/** Servers take users for offline of whom they hear nothing for half an hour. */
const remindEveryMs = 25 * 60_000;
const remindCheckMs = 5 * 60_000;
/** Users of whom is told at once, and what is given to servers in a turn of the event loop. */
const [usersAtOnce, statesPerTurn] = [50, 20_000];

/** Tells other servers who is there. Best effort: what cannot be told now is no news later. */
@Injectable()
export class OutgoingPresence implements OnModuleInit {
  /** When the presence of a user was told last, milliseconds of the monotonic clock. */
  readonly #told = new Map<string, number>();
  /** What is being told, by user. */
  readonly #underWay = new Map<string, PresenceState>();
  /** What an earlier process told last is not known; it was before this. */
  readonly #startedMs: number;
  readonly #presenceOut;
  readonly #effort: BestEffort;

  // Ten parameters: who is there comes from the hooks and from the board, and goes to the audience, again and again.
  constructor(
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly hooks: EphemeralHooks,
    private readonly presence: PresenceReader,
    private readonly audience: RemoteAudience,
    private readonly sender: FederationSender,
    private readonly tasks: BackgroundTasks,
    metrics: Metrics,
    lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#startedMs = clock.monotonicMs();
    this.#presenceOut = metrics.counter('synapse_handler_presence_federation_presence_out');
    this.#effort = new BestEffort(lifecycle, logger);
  }

  onModuleInit(): void {
    this.hooks.subscribe({
      presenceChanged: (states) => this.#effort.try('presence', () => this.#tell(states)),
      presenceFor: (userIds, states) => this.introduce(new Set(userIds.map(domainOf)), states),
    });
    const run = (): Promise<void> => this.#remind();
    this.tasks.add({ name: 'remind_of_presence', role: 'writer', everyMs: remindCheckMs, run }).start();
  }

  /** Tells servers that had no reason to know of users of this server before. */
  introduce(servers: Iterable<string>, states: readonly PresenceState[]): void {
    for (const state of states) this.#note(state);
    this.#send(servers, states);
  }

  /** The same, those of some servers that take part in a room. */
  async introduceIn(roomId: string, servers: ReadonlySet<string>, states: readonly PresenceState[]): Promise<void> {
    const allowed = (await this.audience.of(roomId)).filter((server) => servers.has(server));
    if (allowed.length > 0) this.introduce(allowed, states);
  }

  /** Whether nothing newer was told of a user since it was begun to tell this. */
  readonly #isNews = (state: PresenceState): boolean => this.#underWay.get(state.userId) === state;

  /** Remembers that somebody's presence is told now. */
  #note({ userId, state }: PresenceState): void {
    if (state === 'offline') this.#told.delete(userId);
    else this.#told.set(userId, this.clock.monotonicMs());
  }

  #send(servers: Iterable<string>, states: readonly PresenceState[]): void {
    this.sender.sendPresence(
      [...servers].filter((server) => this.audience.mayReach(server)),
      states,
    );
  }

  async #tell(states: readonly PresenceState[]): Promise<void> {
    // Who shares no room with any server may have been told to some all the same: by a module.
    for (const state of states) if (state.state === 'offline') this.#note(state);
    if (!this.audience.hasAny) return;
    for (const state of states) this.#underWay.set(state.userId, state);
    try {
      for (const [index, some] of batchesOf(states, usersAtOnce).entries()) {
        if (index > 0) await ownTurn();
        await this.#tellOf(some.filter(this.#isNews));
      }
    } finally {
      for (const state of states) if (this.#isNews(state)) this.#underWay.delete(state.userId);
    }
  }

  async #tellOf(states: readonly PresenceState[]): Promise<void> {
    const userIds = states.map(({ userId }) => userId);
    const audiences = await this.audience.ofUsers(userIds, new Set(this.config.get('exclude_rooms_from_presence')));
    const byServer = new Map<string, PresenceState[]>();
    for (const state of states.filter(this.#isNews)) {
      const servers = audiences.get(state.userId) ?? new Set();
      for (const server of servers) {
        const list = byServer.get(server);
        if (list) list.push(state);
        else byServer.set(server, [state]);
      }
      if (servers.size > 0) this.#note(state);
    }
    let count = 0;
    for (const [server, list] of byServer) {
      if ((count += list.length) > statesPerTurn) {
        await ownTurn();
        count = list.length;
      }
      this.sender.sendPresence([server], list);
      this.#presenceOut.inc({}, list.length);
    }
  }

  /** Tells again of those who are still there, but of whom nothing was told for long. */
  async #remind(): Promise<void> {
    if (!this.audience.hasAny && this.#told.size === 0) return;
    const before = this.clock.monotonicMs() - remindEveryMs + remindCheckMs;
    const due = this.presence
      .localPresent()
      .filter(({ userId }) => (this.#told.get(userId) ?? this.#startedMs) < before);
    if (due.length === 0) return;
    for (const state of due) this.#note(state);
    await this.#tell(due);
    await this.presence.remindElsewhere(due);
  }
}
