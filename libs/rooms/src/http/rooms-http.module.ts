import { Module } from '@nestjs/common';
import { CreateRoomController } from './create-room.controller.js';
import { DelayedEventsController } from './delayed-events.controller.js';
import { AliasController } from './alias.controller.js';
import { HistoryController } from './history.controller.js';
import { LeaveController } from './leave.controller.js';
import { MembershipController } from './membership.controller.js';
import { DirectoryController } from './directory.controller.js';
import { SpaceController } from './space.controller.js';
import { RelationsController } from './relations.controller.js';
import { ReportsController } from './reports.controller.js';
import { UpgradeController } from './upgrade.controller.js';
import { RoomsModule } from '../rooms.module.js';
import { SendController } from './send.controller.js';
import { StateController } from './state.controller.js';
import { RetentionController } from './retention.controller.js';

/** The rooms part of the client API. */
@Module({
  imports: [RoomsModule],
  controllers: [
    AliasController,
    CreateRoomController,
    DelayedEventsController,
    HistoryController,
    LeaveController,
    MembershipController,
    SendController,
    StateController,
    DirectoryController,
    SpaceController,
    RelationsController,
    ReportsController,
    RetentionController,
    UpgradeController,
  ],
})
export class RoomsHttpModule {}
