import { Inject, Injectable, Optional } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { localpartOf } from '@rookery/matrix-types';
import { Clock, Config } from '@rookery/platform';
import type { StoredEvent } from '@rookery/rooms';
import { Mailer, type MailRequest } from '@rookery/templates';
import { ProfileService } from '@rookery/users';
import type { Pusher } from '../pushers/pusher.js';
import { roomValues, subjectOf } from './digest-content.js';
import { DigestRooms } from './digest-rooms.js';
import type { RoomThrottle } from './digest.query.js';
import { UnsubscribeLinks } from './unsubscribe-links.js';

/** Writes mails about unread messages. */
@Injectable()
export class DigestMails {
  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly rooms: DigestRooms,
    private readonly profiles: ProfileService,
    private readonly links: UnsubscribeLinks,
    @Optional() @Inject(Mailer) private readonly mailer: Mailer | undefined,
  ) {}

  /** Whether the server sends any. */
  get isEnabled(): boolean {
    return this.mailer !== undefined && this.config.get('email.enable_notifs');
  }

  /** How long a message stays unread before a mail tells of it. */
  get delayMs(): number {
    return this.config.get('email.notif_delay_before_mail');
  }

  /** Leaves a mail to be sent once the transaction holds. */
  async queue(tx: Tx, mail: MailRequest): Promise<void> {
    await this.mailer?.queue(tx, mail);
  }

  /** The mail about what is unread. @param cause for which it is sent now @param throttle of its room */
  async write(
    pusher: Pusher,
    unread: readonly StoredEvent[],
    cause: StoredEvent,
    throttle: RoomThrottle | undefined,
  ): Promise<MailRequest> {
    const { userId, pushkey: address } = pusher;
    const { rooms, senders } = await this.rooms.read(userId, unread);
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
          delay_before_mail_ms: this.delayMs,
          last_sent_ts: throttle?.lastSentMs ?? null,
          throttle_ms: throttle?.throttleMs ?? null,
        },
      },
      ...(link !== undefined && {
        headers: { 'List-Unsubscribe': `<${link}>`, 'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click' },
      }),
    };
  }
}
