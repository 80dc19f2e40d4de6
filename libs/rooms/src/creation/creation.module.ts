import { Module } from '@nestjs/common';
import { DirectoryModule } from '../directory/directory.module.js';
import { MembershipModule } from '../membership/membership.module.js';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { SendingModule } from '../sending/sending.module.js';
import { RoomAdmission } from './room-admission.js';
import { RoomCreation } from './room-creation.service.js';

/** Making rooms. */
@Module({
  imports: [DirectoryModule, MembershipModule, PipelineModule, SendingModule],
  providers: [RoomAdmission, RoomCreation],
  exports: [RoomCreation],
})
export class CreationModule {}
