import { Inject, Injectable, type OnModuleInit, Optional } from '@nestjs/common';
import { Database } from '@rookery/database';
import { prejoinStateOf } from '@rookery/events';
import { BackgroundTasks, Clock, Config, Lifecycle, Logger } from '@rookery/platform';
import { EventStore, RoomStateReader, type StoredEvent, TimelineReader, VisibilityFilter } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import { Mailer, type MailRequest } from '@rookery/templates';
import { ProfileService } from '@rookery/users';
import { OwnReads } from '../actions/own-reads.js';
import { selectUnread } from '../actions/push-actions.query.js';
import type { Pusher } from '../pushers/pusher.js';
import { clearDue, findPusher, recordSuccess } from '../pushers/pusher.query.js';
import { type DigestRoom, roomValues, type Senders, subjectOf } from './digest-content.js';
import {
  deleteStaleThrottles,
  dueEmailPushers,
  type RoomThrottle,
  selectThrottles,
  writeThrottles,
} from './digest.query.js';
import { UnsubscribeLinks } from './unsubscribe-links.js';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
/** How often unread messages are looked at. */
const lookEveryMs = minuteMs;
const pageSize = 100;
/** Notifications in one mail. */
const maxNotifications = 100;
/** A room that has caused a mail causes the next one not before this time, and then ever more rarely... */
const firstThrottleMs = 10 * minuteMs;
const throttleFactor = 12;
const longestThrottleMs = 24 * hourMs;
/** ...until it was quiet for so long. */
const throttleResetMs = 12 * hourMs;

/** Sends mails about messages that stay unread, to those who asked for them: rarely, and once for each message. */
@Injectable()
export class EmailDigests implements OnModuleInit {
  #work: Promise<void> | undefined;
  #stopped = false;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly timeline: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly profiles: ProfileService,
    private readonly links: UnsubscribeLinks,
    private readonly ownReads: OwnReads,
    private readonly tasks: BackgroundTasks,
    @Optional() @Inject(Mailer) private readonly mailer: Mailer | undefined,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'mails about missed messages',
      start: () => this.start(),
      stop: () => this.stop(),
    });
  }

  /** Begins to look for unread messages, where the settings want that. */
  start(): void {
    if (!this.mailer || !this.config.get('email.enable_notifs')) return;
    const run = (): Promise<void> => this.look();
    this.tasks.add({ name: 'mail_missed_messages', role: 'pusher', everyMs: lookEveryMs, run }).start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#work;
  }

  /** Looks once at everybody who has something unread. Never rejects; a second call waits for the first. */
  look(): Promise<void> {
    this.#work ??= this.#look().finally(() => (this.#work = undefined));
    return this.#work;
  }

  async #look(): Promise<void> {
    try {
      let last = 0;
      for (;;) {
        const ids = await dueEmailPushers(this.database, last, pageSize);
        for (const id of ids) {
          if (this.#stopped) return;
          await this.#consider(id);
        }
        if (ids.length < pageSize) break;
        last = ids.at(-1) ?? last;
      }
      await this.database.write(deleteStaleThrottles, { name: 'pusher_throttle' });
    } catch (error) {
      this.logger.error('Mails about missed messages could not be sent', { err: error });
    }
  }

  async #consider(id: number): Promise<void> {
    const pusher = await findPusher(this.database, id);
    if (!pusher?.due) return;
    const { upTo } = pusher.due;
    const after = Math.max(pusher.due.after, pusher.lastStreamOrdering);
    await this.ownReads.settle(pusher.userId);
    const rows = await selectUnread(this.database, pusher.userId, { after, upTo, limit: maxNotifications });
    const stored = await this.events.inOrder(rows.map((row) => row.event_id));
    const unread = stored.filter(({ redactedBy }) => redactedBy === undefined);
    const last = rows.at(-1)?.stream_ordering ?? upTo;
    if (unread.length === 0) {
      await this.database.write((tx) => clearDue(tx, id, last), { name: 'pusher_done' });
      return;
    }
    const nowMs = this.clock.nowMs();
    const throttles = await selectThrottles(this.database, id);
    const delayMs = this.config.get('email.notif_delay_before_mail');
    const cause = unread.find(({ receivedTs, event }) => {
      const throttle = throttles.get(event.roomId);
      const allowedAt = throttle === undefined ? 0 : throttle.lastSentMs + throttle.throttleMs;
      return nowMs >= Math.max(receivedTs + delayMs, allowedAt);
    });
    if (cause === undefined) return;
    const mail = await this.#mail(pusher, unread, cause, throttles.get(cause.event.roomId));
    const rooms = new Set(unread.map(({ event }) => event.roomId));
    const next = new Map([...rooms].map((roomId) => [roomId, nextThrottle(throttles.get(roomId), nowMs)]));
    await this.database.write(
      async (tx) => {
        await this.mailer?.queue(tx, mail);
        await writeThrottles(tx, id, next);
        await recordSuccess(tx, id, last, nowMs);
        if (rows.length < maxNotifications) await clearDue(tx, id, upTo);
      },
      { name: 'email_digest' },
    );
  }

  async #mail(
    pusher: Pusher,
    unread: readonly StoredEvent[],
    cause: StoredEvent,
    throttle: RoomThrottle | undefined,
  ): Promise<MailRequest> {
    const { userId, pushkey: address } = pusher;
    const { rooms, senders } = await this.#read(userId, unread);
    const profile = await this.profiles.get(userId);
    const { name, values } = subjectOf(rooms, senders);
    const subject = this.mailer?.subject(name, values) ?? '';
    const link = this.links.link(userId, address);
    return {
      to: address,
      kind: 'notif',
      subject,
      values: {
        user_display_name: profile?.displayname ?? localpartOf(userId),
        unsubscribe_link: link ?? null,
        summary_text: subject,
        rooms: await roomValues(rooms, senders, {
          clientUrl: this.config.get('email.client_base_url'),
          withContent: this.config.get('push.include_content'),
        }),
        reason: {
          room_id: cause.event.roomId,
          room_name: rooms.find(({ roomId }) => roomId === cause.event.roomId)?.name ?? null,
          now: this.clock.nowMs(),
          received_at: cause.receivedTs,
          delay_before_mail_ms: this.config.get('email.notif_delay_before_mail'),
          last_sent_ts: throttle?.lastSentMs ?? null,
          throttle_ms: throttle?.throttleMs ?? null,
        },
      },
      ...(link !== undefined && {
        headers: { 'List-Unsubscribe': `<${link}>`, 'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click' },
      }),
    };
  }

  /** What a user may see of what stands just before and just after some events, by the event. */
  async #around(userId: string, unread: readonly StoredEvent[]): Promise<DigestRoom['around']> {
    const neighbors = await this.timeline.neighbors(unread.map(({ event }) => event.eventId));
    const ids = new Set([...neighbors.values()].flatMap(({ before, after }) => [before, after]));
    const stored = await this.events.inOrder([...ids].filter((id) => id !== undefined));
    const seen = await this.visibility.visible(
      userId,
      stored.filter(({ redactedBy }) => redactedBy === undefined),
    );
    const byId = new Map(seen.map((one) => [one.stored.event.eventId, one.stored.event]));
    return new Map(
      [...neighbors].map(([id, { before, after }]) => [
        id,
        { before: byId.get(before ?? ''), after: byId.get(after ?? '') },
      ]),
    );
  }

  /** Names and pictures of rooms and senders, in a few queries and the events themselves. */
  async #read(userId: string, unread: readonly StoredEvent[]): Promise<{ rooms: DigestRoom[]; senders: Senders }> {
    const around = await this.#around(userId, unread);
    const beside = [...around.values()].flatMap(({ before, after }) => [before, after]);
    const byRoom = Map.groupBy(unread, ({ event }) => event.roomId);
    const types = ['m.room.name', 'm.room.canonical_alias', 'm.room.avatar', 'm.room.create'] as const;
    const members = [
      ...new Set([...unread.map(({ event }) => event.sender), ...beside.flatMap((event) => event?.sender ?? [])]),
    ];
    const states = await this.state.currentIdsOf([...byRoom.keys()], {
      types: [
        ...types.map((type) => [type, ''] as const),
        ...members.map((userId) => ['m.room.member', userId] as const),
      ],
    });
    const loaded = await this.events.events([...states.values()].flatMap((ids) => [...ids.values()]));
    const text = (roomId: string, type: string, stateKey: string, field: string): string | undefined => {
      const id = states.get(roomId)?.get(stateKeyOf(type, stateKey));
      const value =
        (id === undefined ? undefined : loaded.get(id)?.content)?.[field] ??
        shownWithInvite(roomId, type, stateKey, field);
      return typeof value === 'string' && value !== '' ? value : undefined;
    };
    // Of a room that the user is only invited to, this server may know what came with the invite, and no more.
    const shownWithInvite = (roomId: string, type: string, stateKey: string, field: string): unknown => {
      const shown = byRoom.get(roomId)?.flatMap(({ event }) => prejoinStateOf(event)) ?? [];
      const found = shown.find((one) => one['type'] === type && one['state_key'] === stateKey);
      return (found?.['content'] as Record<string, unknown> | undefined)?.[field];
    };
    const rooms = [...byRoom].map(([roomId, events]) => ({
      roomId,
      name: text(roomId, 'm.room.name', '', 'name') ?? text(roomId, 'm.room.canonical_alias', '', 'alias'),
      avatarUrl: text(roomId, 'm.room.avatar', '', 'url'),
      isSpace: text(roomId, 'm.room.create', '', 'type') === 'm.space',
      events: events.map(({ event }) => event),
      around,
    }));
    const senders: Senders = (roomId, userId) => ({
      name: text(roomId, 'm.room.member', userId, 'displayname') ?? localpartOf(userId),
      avatarUrl: text(roomId, 'm.room.member', userId, 'avatar_url'),
    });
    return { rooms, senders };
  }
}

const localpartOf = (userId: string): string => userId.slice(1).split(':')[0] ?? userId;

function nextThrottle(before: RoomThrottle | undefined, nowMs: number): RoomThrottle {
  const isQuiet = before === undefined || nowMs - before.lastSentMs > before.throttleMs + throttleResetMs;
  const throttleMs = isQuiet ? firstThrottleMs : Math.min(before.throttleMs * throttleFactor, longestThrottleMs);
  return { lastSentMs: nowMs, throttleMs };
}
