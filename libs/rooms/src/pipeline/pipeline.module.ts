import { Module } from '@nestjs/common';
import { RoomSnapshots } from '../room/room-snapshots.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { BatchCommitter } from './batch-committer.js';
import { DraftBuilder } from './draft-builder.js';
import { EventContexts } from './event-context.js';
import { EventGates } from './event-gates.js';
import { EventPersister } from './event-persister.js';
import { InboundEvents } from './inbound-events.service.js';
import { LocalEventPersister } from './local-event-persister.js';
import { LocalStager } from './local-stager.js';
import { PolicyServers } from './policy-servers.js';
import { PrejoinState } from './prejoin-state.js';
import { RemoteStager } from './remote-stager.js';
import { RoomTurns } from './room-turns.js';
import { StateCompletion } from './state-completion.js';

/** The way of an event, from draft or PDU to commit. */
@Module({
  imports: [RoomStateModule, RoomStoreModule],
  providers: [
    BatchCommitter,
    DraftBuilder,
    EventContexts,
    EventGates,
    InboundEvents,
    LocalEventPersister,
    LocalStager,
    PolicyServers,
    PrejoinState,
    RemoteStager,
    RoomSnapshots,
    RoomTurns,
    StateCompletion,
    { provide: EventPersister, useExisting: LocalEventPersister },
  ],
  exports: [DraftBuilder, EventPersister, InboundEvents, PrejoinState, RoomSnapshots],
})
export class PipelineModule {}
