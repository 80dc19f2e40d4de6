import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { FederationClientModule } from '@rookery/federation-client';
import { RoomsModule } from '@rookery/rooms';
import { DeviceListIntroductions } from './devices/device-list-introductions.js';
import { DeviceListNews } from './devices/device-list-news.js';
import { FormerDeviceChanges } from './devices/former-device-changes.js';
import { OutgoingToDevice } from './devices/outgoing-to-device.js';
import { FederationKeySource } from './devices/remote-key-source.js';
import { RemoteDeviceLists } from './devices/remote-device-lists.js';
import { OutgoingPresence } from './edus/outgoing-presence.js';
import { OutgoingReceipts } from './edus/outgoing-receipts.js';
import { PresenceArrivals } from './edus/presence-arrivals.js';
import { FederationModule } from './federation.module.js';
import { KnownServers } from './sender/known-servers.js';
import { Strangers } from './sender/strangers.js';
import { SenderModule } from './sender.module.js';

/** Brings other servers what happens here. What there is to send is found in the process that writes; sent by whoever has its server. */
@Module({
  imports: [SenderModule, FederationModule, FederationClientModule, RoomsModule, EphemeralModule, E2eeModule],
  providers: [
    DeviceListNews,
    DeviceListIntroductions,
    FormerDeviceChanges,
    OutgoingToDevice,
    OutgoingReceipts,
    OutgoingPresence,
    PresenceArrivals,
    RemoteDeviceLists,
    FederationKeySource,
    KnownServers,
    Strangers,
  ],
  exports: [SenderModule, DeviceListNews, RemoteDeviceLists],
})
export class FederationSenderModule {}
