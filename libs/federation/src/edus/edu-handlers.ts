import { Injectable, type OnModuleInit } from '@nestjs/common';
import { ToDeviceService } from '@rookery/e2ee';
import { InboundEphemeral } from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import { RemoteDeviceLists } from '../devices/remote-device-lists.js';
import { RemoteAudience } from '../sender/remote-audience.js';
import { type EduHandler, InboundEdus } from './inbound-edus.js';

/** Rooms that one EDU of receipts may be about. */
const maxRooms = 500;

/** Names the handler of each EDU, and asks the rooms' access control lists where an EDU is about a room. */
@Injectable()
export class EduHandlers implements OnModuleInit {
  constructor(
    private readonly edus: InboundEdus,
    private readonly audience: RemoteAudience,
    private readonly ephemeral: InboundEphemeral,
    private readonly toDevice: ToDeviceService,
    private readonly deviceLists: RemoteDeviceLists,
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
    if (typeof roomId !== 'string' || (await this.audience.openTo(origin, [roomId])).size === 0) return;
    await this.ephemeral.receiveTyping(origin, content);
  }

  async #receipts(origin: string, content: JsonObject): Promise<void> {
    const rooms = Object.keys(content).slice(0, maxRooms);
    const open = await this.audience.openTo(origin, rooms);
    const allowed = Object.entries(content).filter(([roomId]) => open.has(roomId));
    if (allowed.length > 0) await this.ephemeral.receiveReceipts(origin, Object.fromEntries(allowed));
  }
}
