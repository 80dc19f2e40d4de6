import { Controller, Param, Post } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { isValidRoomId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { PresenceService } from '../presence/presence.service.js';
import { type MarkerRequest, type MarkerType, ReceiptService } from './receipt.service.js';

const types: readonly MarkerType[] = ['m.read', 'm.read.private', 'm.fully_read'];

const back = {
  'com.beeper.allow_backward': json.optional(
    'Whether the event may be an earlier one than before (MSC4446).',
    json.unknown(),
  ),
};
const receiptBody = json.object({
  ...back,
  thread_id: json.optional('The thread that was read: `main` or the id of its root.', json.string()),
});
const eventId = json.string();
const markersSchema = json.object({
  ...back,
  'm.read': json.optional('The event that was read up to, for everybody to see.', eventId),
  'm.read.private': json.optional('The same for nobody else to see.', eventId),
  'm.fully_read': json.optional('The event before which everything was read: where the marker stands.', eventId),
});

@Controller()
export class ReceiptController {
  constructor(
    private readonly receipts: ReceiptService,
    private readonly presence: PresenceService,
    private readonly config: Config,
  ) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/receipt/{receiptType}/{eventId} */
  @Post(stable('/rooms/:roomId/receipt/:receiptType/:eventId'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async receipt(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('receiptType') receiptType: string,
    @Param('eventId') eventId: string,
    @JsonBody(receiptBody, { optional: true, wrongType: 'M_INVALID_PARAM' }) body: Infer<typeof receiptBody>,
  ): Promise<object> {
    const type = types.find((one) => one === receiptType);
    if (type === undefined) throw MatrixError.invalidParam(`Receipt types are ${types.join(', ')}`);
    return this.#set(requester, roomId, [{ type, eventId, threadId: body.thread_id, ...this.#back(body) }]);
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/read_markers */
  @Post(stable('/rooms/:roomId/read_markers'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async markers(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(markersSchema) body: Infer<typeof markersSchema>,
  ): Promise<object> {
    const markers = types.flatMap((type) => {
      const marked = body[type];
      return marked === undefined ? [] : [{ type, eventId: marked, ...this.#back(body) }];
    });
    return this.#set(requester, roomId, markers);
  }

  async #set(requester: Requester, roomId: string, markers: readonly MarkerRequest[]): Promise<object> {
    if (!isValidRoomId(roomId)) throw MatrixError.notRoomId();
    await this.receipts.setByClient(requester, roomId, markers);
    this.presence.active(requester.userId, requester.deviceId);
    return {};
  }

  /** MSC4446 */
  #back(body: Infer<typeof receiptBody>): { mayGoBack: boolean } {
    return {
      mayGoBack: body['com.beeper.allow_backward'] === true && this.config.get('experimental_features.msc4446_enabled'),
    };
  }
}
