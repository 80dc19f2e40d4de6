import { Injectable } from '@nestjs/common';
import { canonicalJson, redactEvent } from '@rookery/events';
import { type ClientEvent, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { PowerLevels } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { EventSerializer } from '../reading/event-serializer.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { RoomReadingService } from './room-reading.service.js';

/** Shows those who moderate a room what was redacted, for as long as it is kept (MSC2815). */
@Injectable()
export class RedactedContent {
  readonly isEnabled: boolean;

  constructor(
    private readonly reading: RoomReadingService,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly serializer: EventSerializer,
    private readonly config: Config,
  ) {
    this.isEnabled = config.get('experimental_features.msc2815_enabled');
  }

  /**
   * An event as it was sent.
   * @throws MatrixError 404 `M_NOT_FOUND`, or `FI.MAU.MSC2815_UNREDACTED_CONTENT_DELETED` where it is not kept any more; 403
   *   `M_FORBIDDEN` for whoever may not redact in the room and is no administrator
   */
  async event(requester: Requester, roomId: string, eventId: string): Promise<ClientEvent> {
    const stored = await this.reading.visibleEvent(requester, roomId, eventId);
    if (!requester.isAdmin && !(await this.#mayRedact(requester.userId, stored)))
      throw MatrixError.forbidden('Only those who may redact in this room see what was redacted');
    const sent = stored.redactedBy === undefined ? stored : await this.#unredacted(stored);
    const [written] = await this.serializer.serialize(requester, [{ stored: sent, membership: undefined }]);
    if (written === undefined) throw MatrixError.noSuchEvent();
    return written;
  }

  async #unredacted(stored: StoredEvent): Promise<StoredEvent> {
    const event = await this.events.unredacted(stored.event.eventId);
    const isGone = event === undefined || contentOf(event.content) === contentOf(redactEvent(event).content);
    if (!isGone) return { ...stored, event };
    const keptMs = this.config.get('redaction_retention_period');
    throw MatrixError.redactedContentDeleted(
      undefined,
      typeof keptMs === 'number' ? { 'fi.mau.msc2815.content_keep_ms': keptMs } : {},
    );
  }

  async #mayRedact(userId: string, { event }: StoredEvent): Promise<boolean> {
    const [powerLevels, create] = await Promise.all([
      this.state.currentEvent(event.roomId, 'm.room.power_levels'),
      this.state.currentEvent(event.roomId, 'm.room.create'),
    ]);
    const levels = new PowerLevels(powerLevels?.event, create?.event, event.rules);
    return levels.user(userId) >= levels.scalar('redact');
  }
}

const contentOf = (content: Readonly<JsonObject>): string => canonicalJson(content as JsonObject);
