import { Controller, Get, Param, Put } from '@nestjs/common';
import { Access, type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { DelayedEvents } from '../delayed/delayed-events.service.js';
import { AliasService } from '../directory/alias.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { type SendQuery, sendQuery } from './send-options.js';

const contentBody = json.described('The content of the event; its type says what is in it.', json.anyObject());

const oneStateQuery = queryOf({
  format: param.choice('Whether the content alone or the whole event is wanted.', ['content', 'event']),
});

/** Setting and reading a room's state. */
@Controller()
export class StateController {
  constructor(
    private readonly creation: EventCreation,
    private readonly reading: RoomReadingService,
    private readonly memberships: MembershipService,
    private readonly state: RoomStateReader,
    private readonly aliases: AliasService,
    private readonly delayed: DelayedEvents,
  ) {}

  /** PUT /_matrix/client/v3/rooms/{roomId}/state/{eventType}/{stateKey} */
  @Put([...stable('/rooms/:roomId/state/:eventType/:stateKey'), ...stable('/rooms/:roomId/state/:eventType')])
  @Access({ auth: 'required', guests: true })
  async setState(
    @Who() requester: Requester,
    @Query(sendQuery) query: SendQuery,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('stateKey') stateKey: string | undefined,
    @JsonBody(contentBody) content: Infer<typeof contentBody>,
  ): Promise<object> {
    const isOwnLeave = type === 'm.room.member' && stateKey === requester.userId && content['membership'] === 'leave';
    // Whoever is suspended may leave a room in any way there is, and change nothing else in it.
    if (requester.suspended && !isOwnLeave) throw MatrixError.userSuspended();
    const { ts: originServerTs, 'org.matrix.msc4140.delay': delayMs } = query;
    const stickyDurationMs = query['org.matrix.msc4354.sticky_duration_ms'];
    const event = { roomId, type, stateKey: stateKey ?? '', content, originServerTs, stickyDurationMs };
    if (delayMs !== undefined) return { delay_id: await this.delayed.schedule(requester, event, delayMs) };
    if (type === 'm.room.member') {
      const target = stateKey ?? '';
      await this.creation.assertMaySetState(requester, event);
      const changed = await this.memberships.byContent(requester, roomId, target, content, { originServerTs });
      // Where nothing changed, or another server made the event, it is the one that counts now.
      return { event_id: changed?.eventId ?? (await this.state.currentId(roomId, type, target)) ?? '' };
    }
    if (type === 'm.room.canonical_alias') await this.aliases.checkCanonical(requester, roomId, content);
    const sent = await this.creation.send(requester, event);
    return { event_id: sent.eventId };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/state */
  @Get(stable('/rooms/:roomId/state'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  allState(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    return this.reading.allState(requester, roomId);
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/state/{eventType}/{stateKey} */
  @Get([...stable('/rooms/:roomId/state/:eventType/:stateKey'), ...stable('/rooms/:roomId/state/:eventType')])
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async oneState(
    @Who() requester: Requester,
    @Query(oneStateQuery) query: InferQuery<typeof oneStateQuery>,
    @Param('roomId') roomId: string,
    @Param('eventType') type: string,
    @Param('stateKey') stateKey: string | undefined,
  ): Promise<object> {
    if (type.length > 255 || (stateKey ?? '').length > 255) throw MatrixError.notFound('There is no such state');
    const { format } = query;
    const stored = await this.reading.stateEvent(requester, roomId, type, stateKey ?? '');
    return format === 'event' ? this.reading.write(requester, stored) : stored.event.content;
  }
}
