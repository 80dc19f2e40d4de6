import { Injectable, type OnModuleInit } from '@nestjs/common';
import { ToDeviceSending } from '@rookery/e2ee';
import { InboundEphemeral } from '@rookery/ephemeral';
import { isValidRoomId, type JsonObject } from '@rookery/matrix-types';
import { RemoteDeviceLists } from '../devices/remote-device-lists.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { AfterEvents } from './after-events.js';
import { StagedEvents } from './staged-events.js';
import { type EduHandler, InboundEdus } from '../edus/inbound-edus.js';

/** Rooms that one EDU of receipts may be about. */
const maxRooms = 500;

/**
 * Names the handler of each EDU, and asks the rooms' access control lists where an EDU is about a room. What is about a room
 * comes after the events that were on their way into it.
 */
@Injectable()
export class EduHandlers implements OnModuleInit {
  constructor(
    private readonly edus: InboundEdus,
    private readonly audience: RemoteAudience,
    private readonly ephemeral: InboundEphemeral,
    private readonly toDevice: ToDeviceSending,
    private readonly deviceLists: RemoteDeviceLists,
    private readonly staged: StagedEvents,
    private readonly after: AfterEvents,
  ) {}

  onModuleInit(): void {
    this.edus.register('m.typing', (origin, content) => this.#typing(origin, content));
    this.edus.register('m.receipt', (origin, content) => this.#receipts(origin, content));
    this.edus.register('m.presence', (origin, content) => this.ephemeral.receivePresence(origin, content));
    // Without these a conversation cannot be read: they are not acknowledged before they are stored.
    const mustArrive = { mustArrive: true };
    this.edus.register('m.direct_to_device', (origin, content) => this.toDevice.receive(origin, content), mustArrive);
    const changed: EduHandler = (origin, content) => this.deviceLists.receiveDevice(origin, content);
    this.edus.register('m.device_list_update', changed, mustArrive);
    for (const type of ['m.signing_key_update', 'org.matrix.signing_key_update'])
      this.edus.register(type, (origin, content) => this.deviceLists.receiveKeys(origin, content), mustArrive);
  }

  async #typing(origin: string, content: JsonObject): Promise<void> {
    const { room_id: roomId } = content;
    if (typeof roomId !== 'string' || !isValidRoomId(roomId)) return;
    await this.after.run(origin, roomId, [roomId], async () => {
      if ((await this.audience.openTo(origin, [roomId])).size > 0) await this.ephemeral.receiveTyping(origin, content);
    });
  }

  async #receipts(origin: string, content: JsonObject): Promise<void> {
    const rooms = Object.keys(content).slice(0, maxRooms).filter(isValidRoomId);
    const [busy, quiet] = [new Set(rooms.filter((roomId) => this.staged.isBusy(roomId))), [] as string[]];
    for (const roomId of rooms) if (!busy.has(roomId)) quiet.push(roomId);
    for (const roomId of busy)
      await this.after.run(origin, roomId, [roomId], () => this.#receiptsIn(origin, content, [roomId]));
    if (quiet.length > 0) await this.#receiptsIn(origin, content, quiet);
  }

  async #receiptsIn(origin: string, content: JsonObject, rooms: readonly string[]): Promise<void> {
    const open = await this.audience.openTo(origin, rooms);
    const allowed = rooms.filter((roomId) => open.has(roomId)).map((roomId) => [roomId, content[roomId]]);
    if (allowed.length > 0) await this.ephemeral.receiveReceipts(origin, Object.fromEntries(allowed) as JsonObject);
  }
}
